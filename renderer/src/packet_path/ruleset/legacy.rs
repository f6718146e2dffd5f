//! Tables of iptables-legacy, of which the kernel tells only the names.

use std::{fs, process::Command};

/// Where the kernel names the tables of iptables-legacy, and the program that prints them.
const LEGACY_TABLES: [(&str, &str, &str); 2] = [
    (
        "ip",
        "/proc/thread-self/net/ip_tables_names",
        "iptables-legacy-save",
    ),
    (
        "ip6",
        "/proc/thread-self/net/ip6_tables_names",
        "ip6tables-legacy-save",
    ),
];

/// Families of iptables-legacy that have tables, with their names.
pub(in crate::packet_path) fn legacy_tables() -> Vec<(&'static str, String)> {
    let names = LEGACY_TABLES.into_iter().filter_map(|(family, path, _)| {
        // Without its module there is no such file.
        let names = fs::read_to_string(path).ok()?;
        let names: Vec<&str> = names.split_whitespace().collect();
        (!names.is_empty()).then(|| (family, names.join(", ")))
    });
    names.collect()
}

/// Whether a table of iptables-legacy of this family has a chain whose name begins so; none if no program tells.
pub(in crate::packet_path) fn has_legacy_chain(family: &str, prefix: &str) -> Option<bool> {
    let (.., program) = LEGACY_TABLES.iter().find(|(of, ..)| *of == family)?;
    let output = Command::new(program).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut chains = text.lines().filter_map(|line| line.strip_prefix(':'));
    let is_there = chains.any(|chain| chain.starts_with(prefix));
    output.status.success().then_some(is_there)
}
