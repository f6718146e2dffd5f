//! The section `conntrack`: sysctls of the kernel's connection tracking.

use std::time::Duration;

use serde_json::Value;

use super::converted_setting::ConvertedSetting;

/// The timeouts, and the sysctls that kube-proxy sets for them.
const TIMEOUTS: [(&str, &str); 4] = [
    (
        "tcpEstablishedTimeout",
        "net.netfilter.nf_conntrack_tcp_timeout_established",
    ),
    (
        "tcpCloseWaitTimeout",
        "net.netfilter.nf_conntrack_tcp_timeout_close_wait",
    ),
    ("udpTimeout", "net.netfilter.nf_conntrack_udp_timeout"),
    (
        "udpStreamTimeout",
        "net.netfilter.nf_conntrack_udp_timeout_stream",
    ),
];

const UNCHANGED: &str = "neither kube-proxy nor contiv changes the sysctl";

/// Converts a setting of this section.
pub(super) fn convert(name: &str, value: &Value) -> ConvertedSetting {
    if let Some((_, sysctl)) = TIMEOUTS.iter().find(|(timeout, _)| *timeout == name) {
        return match value.as_str().and_then(duration) {
            Some(Duration::ZERO) => ConvertedSetting::same(UNCHANGED),
            Some(duration) => ConvertedSetting::sysctl(sysctl, duration.as_secs()),
            None => ConvertedSetting::bad_value(),
        };
    }
    match (name, value.as_i64(), value.as_bool()) {
        ("maxPerCore" | "min", Some(0), _) | ("tcpBeLiberal", _, Some(false)) => {
            ConvertedSetting::same(UNCHANGED)
        }
        ("maxPerCore", Some(count), _) => ConvertedSetting::sysctl(
            "net.netfilter.nf_conntrack_max",
            format!("{count} times the cores"),
        ),
        ("min", Some(count), _) => {
            ConvertedSetting::sysctl("net.netfilter.nf_conntrack_max", format!("{count} or more"))
        }
        ("tcpBeLiberal", _, Some(true)) => {
            ConvertedSetting::sysctl("net.netfilter.nf_conntrack_tcp_be_liberal", 1)
        }
        ("maxPerCore" | "min" | "tcpBeLiberal", ..) => ConvertedSetting::bad_value(),
        _ => ConvertedSetting::unknown(),
    }
}

/// The sysctls that kube-proxy sets by default, without those in `configured`.
pub(super) fn defaults(configured: &[String]) -> Vec<(&'static str, ConvertedSetting)> {
    let is_unset = |name: &str| configured.iter().all(|setting| setting != name);
    let mut defaults = Vec::new();
    if is_unset("maxPerCore") && is_unset("min") {
        let converted = ConvertedSetting::sysctl(
            "net.netfilter.nf_conntrack_max",
            "32768 times the cores, 131072 or more",
        );
        defaults.push(("conntrack.maxPerCore", converted));
    }
    for (setting, (name, sysctl), seconds) in [
        ("conntrack.tcpEstablishedTimeout", TIMEOUTS[0], 86_400),
        ("conntrack.tcpCloseWaitTimeout", TIMEOUTS[1], 3600),
    ] {
        if is_unset(name) {
            defaults.push((setting, ConvertedSetting::sysctl(sysctl, seconds)));
        }
    }
    defaults
}

/// A duration as Kubernetes writes it, such as 24h0m0s.
fn duration(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok()
}
