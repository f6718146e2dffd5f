//! Properties of the kernel's messages and of printed text, for any input. Fuzzers search for input that breaks one (`fuzz/`).

use contiv_model::Snapshot;

use crate::{dry_run, nftables, nftables::conntrack, route};

/// The first byte of `input` chooses the subsystem of the message in the other bytes: nf_tables, conntrack or routes.
///
/// # Panics
/// When something that was read does not round-trip.
pub fn netlink(input: &[u8]) {
    let Some((choice, message)) = input.split_first() else {
        return;
    };
    match choice % 5 {
        0 => nftables::fuzz::element(message),
        1 => nftables::fuzz::notifications(message),
        2 => nftables::fuzz::refusal(message),
        3 => conntrack::fuzz::flows(message),
        _ => route::fuzz::messages(message),
    }
}

/// Text in nft's language contains nothing unexpected for any names of services.
///
/// # Panics
/// When text of a service became syntax.
pub fn text(snapshot: &Snapshot) {
    let text = dry_run::nft(snapshot);
    let Some(elements) = text.strip_prefix(&nftables::fuzz::skeleton(snapshot)) else {
        panic!("no skeleton: {text}")
    };
    for line in elements.lines() {
        let (code, comment) = line.split_once('#').unwrap_or((line, ""));
        let is_code = |c: char| c.is_ascii_alphanumeric() || " \t{}.:,-_/&@\"*".contains(c);
        assert!(code.chars().all(is_code), "{code:?}");
        assert!(comment.chars().all(|c| !c.is_control()), "{comment:?}");
        let is_statement = !code.starts_with('\t') && !code.is_empty();
        let is_ours = code == "}"
            || code == "table inet contiv {"
            || code.starts_with("add element inet contiv ");
        assert!(!is_statement || is_ours, "{code:?}");
    }
}

#[cfg(test)]
mod tests {
    include!("../../fuzz/replay.rs");

    #[test]
    fn corpus_of_messages_breaks_no_property() {
        replay("netlink", super::netlink);
    }

    #[test]
    fn corpus_of_objects_becomes_no_syntax() {
        replay("objects", |input| {
            super::text(&contiv_model_testing::snapshot(input));
        });
    }
}
