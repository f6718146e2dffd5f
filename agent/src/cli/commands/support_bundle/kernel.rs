//! The state of this machine's kernel, read without the agent.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use contiv_model::Snapshot;
use contiv_node::plural::counted;
use contiv_renderer::{
    Verifier,
    nftables::TableVerifier,
    route::{RouteOptions, RouteVerifier},
};

use crate::cli::{
    commands::version,
    source::{nft, program},
};

/// Kernel settings that affect packets of services.
const SETTINGS: [&str; 13] = [
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/route_localnet",
    "net/ipv4/conf/all/rp_filter",
    "net/ipv4/conf/default/rp_filter",
    "net/ipv4/ip_local_port_range",
    "net/ipv4/ip_local_reserved_ports",
    "net/ipv6/conf/all/forwarding",
    "net/bridge/bridge-nf-call-iptables",
    "net/netfilter/nf_conntrack_count",
    "net/netfilter/nf_conntrack_max",
    "net/netfilter/nf_conntrack_tcp_loose",
    "net/netfilter/nf_conntrack_tcp_be_liberal",
    "net/core/rmem_max",
];

/// The versions of contiv, the kernel and the system.
pub(super) fn versions() -> String {
    let mut text = version::text() + "\n";
    for path in [
        "/proc/version",
        "/etc/os-release",
        "/proc/uptime",
        "/proc/loadavg",
    ] {
        let content = fs::read_to_string(path).unwrap_or_else(|error| format!("{error}\n"));
        // Writing to a `String` cannot fail.
        let _ = write!(text, "\n{path}\n{content}");
    }
    text
}

/// A line for each setting: its value, or the reason why it cannot be read.
pub(super) fn settings() -> String {
    let line = |name: &str| {
        let path: PathBuf = Path::new("/proc/sys").join(name);
        let value = fs::read_to_string(path)
            .map_or_else(|error| format!("({error})"), |text| text.trim().to_owned());
        format!("{} = {value}\n", name.replace('/', "."))
    };
    SETTINGS.into_iter().map(line).collect()
}

/// All elements of our table, by set.
pub(super) fn table() -> anyhow::Result<String> {
    let sets = TableVerifier::new()
        .elements()?
        .context("there is no table inet contiv")?;
    let mut text = String::new();
    for (set, elements) in sets {
        let _ = writeln!(text, "{set}: {}", counted(elements.len(), "element"));
        for element in elements {
            let _ = writeln!(text, "\t{element}");
        }
    }
    Ok(text)
}

/// Our routes, and all rules and routes of this machine, which also affect packets of services. The second value lists
/// what could not be read, and why.
pub(super) fn routes(options: RouteOptions) -> (String, Vec<String>) {
    let mut problems = Vec::new();
    let mut text = "# routes of contiv\n".to_owned();
    match RouteVerifier::new(options).routes() {
        Ok(routes) if routes.is_empty() => {
            text.push_str("none: no service needs one, or the renderer route does not run\n");
        }
        Ok(routes) => routes.iter().for_each(|route| text.extend([route, "\n"])),
        Err(error) => problems.push(format!("routes of contiv: {error}")),
    }
    for family in ["-4", "-6"] {
        for command in [&["rule", "show"][..], &["route", "show", "table", "all"]] {
            let arguments = [&[family, "-details"], command].concat();
            let output = program::run("ip", &arguments);
            // Writing to a `String` cannot fail.
            let _ = write!(text, "\n# ip {}\n{}", arguments.join(" "), output.text);
            problems.extend(output.problem);
        }
    }
    (text, problems)
}

/// The current differences between the table and the snapshot, as JSON.
pub(super) fn verify_table(snapshot: &Snapshot) -> anyhow::Result<String> {
    differences(TableVerifier::new(), snapshot)
}

/// The current differences between our routes and the snapshot, as JSON.
pub(super) fn verify_routes(options: RouteOptions, snapshot: &Snapshot) -> anyhow::Result<String> {
    differences(RouteVerifier::new(options), snapshot)
}

/// The current differences between the table as contiv reads it and as `nft` lists it, as JSON.
pub(super) fn verify_nft() -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(&nft::compare_once()?)?)
}

fn differences(mut verifier: impl Verifier, snapshot: &Snapshot) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(&verifier.verify(snapshot)?)?)
}
