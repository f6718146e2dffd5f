//! Tables of iptables-legacy, of which the kernel tells only the names.

use std::fs;

/// Where the kernel names the tables of iptables-legacy.
const LEGACY_TABLES: [(&str, &str); 2] = [
    ("ip", "/proc/thread-self/net/ip_tables_names"),
    ("ip6", "/proc/thread-self/net/ip6_tables_names"),
];

/// Families of iptables-legacy that have tables, with their names.
pub(in crate::packet_path) fn legacy_tables() -> Vec<(&'static str, String)> {
    let names = LEGACY_TABLES.into_iter().filter_map(|(family, path)| {
        // Without its module there is no such file.
        let names = fs::read_to_string(path).ok()?;
        let names: Vec<&str> = names.split_whitespace().collect();
        (!names.is_empty()).then(|| (family, names.join(", ")))
    });
    names.collect()
}
