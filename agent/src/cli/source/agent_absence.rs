//! What is known about this machine when its agent does not run.

use std::path::Path;

use contiv_renderer::nftables::{TableContent, table_content};

/// Where the unit of the packages is.
const UNITS: [&str; 3] = [
    "/etc/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
const UNIT: &str = "contiv-agent";

/// A line about the rules in the kernel, and how to start the agent; empty if the kernel cannot be asked.
pub(crate) fn advice() -> String {
    let has_unit = UNITS
        .iter()
        .any(|folder| Path::new(folder).join(format!("{UNIT}.service")).exists());
    // Without CAP_NET_ADMIN nothing is known about the kernel.
    table_content().map_or_else(|_| String::new(), |content| advice_for(content, has_unit))
}

fn advice_for(content: TableContent, has_unit: bool) -> String {
    let start = if has_unit {
        format!("`systemctl start {UNIT}` (`journalctl -u {UNIT}` says why it ended)")
    } else {
        "`contiv agent`, or its DaemonSet".to_owned()
    };
    match content {
        TableContent::Services => format!(
            "The rules of contiv are still in the kernel and serve as last programmed, without later changes. Start the agent: \
             {start}"
        ),
        TableContent::Different => format!(
            "The rules of contiv in the kernel are of another version, or another program changed them: connections to services \
             may fail. Start the agent: {start}"
        ),
        TableContent::Empty | TableContent::Missing => format!(
            "No nftables rules of contiv are in the kernel: connections to services fail unless the renderer route alone, or \
             another proxy, serves them. Start the agent: {start}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_tells_of_rules_and_of_the_start() {
        let served = advice_for(TableContent::Services, true);
        assert!(
            served.contains("still in the kernel and serve as last programmed"),
            "{served}"
        );
        assert!(
            served.contains("`systemctl start contiv-agent`"),
            "{served}"
        );
        let changed = advice_for(TableContent::Different, true);
        assert!(
            changed.contains("another program changed them"),
            "{changed}"
        );
        for content in [TableContent::Empty, TableContent::Missing] {
            let none = advice_for(content, false);
            assert!(
                none.starts_with(
                    "No nftables rules of contiv are in the kernel: connections to services fail unless the renderer route"
                ),
                "{none}"
            );
            assert!(
                none.contains("`contiv agent`") && !none.contains('\n'),
                "{none}"
            );
        }
    }
}
