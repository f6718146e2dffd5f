//! The section `conntrack`: sysctls of the kernel's connection tracking.

use std::time::Duration;

use serde_json::Value;

use super::answer::Answer;

/// The timeouts, and the sysctls that kube-proxy sets for them.
const TIMEOUTS: [(&str, &str); 4] = [
    ("tcpEstablishedTimeout", "net.netfilter.nf_conntrack_tcp_timeout_established"),
    ("tcpCloseWaitTimeout", "net.netfilter.nf_conntrack_tcp_timeout_close_wait"),
    ("udpTimeout", "net.netfilter.nf_conntrack_udp_timeout"),
    ("udpStreamTimeout", "net.netfilter.nf_conntrack_udp_timeout_stream"),
];

const LEFT: &str = "left as it is, by contiv too";

/// What becomes of a setting of this section.
pub(super) fn convert(name: &str, value: &Value) -> Answer {
    if let Some((_, sysctl)) = TIMEOUTS.iter().find(|(timeout, _)| *timeout == name) {
        return match value.as_str().and_then(duration) {
            Some(Duration::ZERO) => Answer::same(LEFT),
            Some(duration) => Answer::sysctl(sysctl, duration.as_secs()),
            None => Answer::bad_value(),
        };
    }
    match (name, value.as_i64(), value.as_bool()) {
        ("maxPerCore" | "min", Some(0), _) | ("tcpBeLiberal", _, Some(false)) => Answer::same(LEFT),
        ("maxPerCore", Some(count), _) => {
            Answer::sysctl("net.netfilter.nf_conntrack_max", format!("{count} times the cores"))
        }
        ("min", Some(count), _) => {
            Answer::sysctl("net.netfilter.nf_conntrack_max", format!("{count} or more"))
        }
        ("tcpBeLiberal", _, Some(true)) => Answer::sysctl("net.netfilter.nf_conntrack_tcp_be_liberal", 1),
        ("maxPerCore" | "min" | "tcpBeLiberal", ..) => Answer::bad_value(),
        _ => Answer::unknown(),
    }
}

/// What kube-proxy sets of all that is not set.
pub(super) fn defaults(set: &[String]) -> Vec<(&'static str, Answer)> {
    let is_unset = |name: &str| set.iter().all(|it| it != name);
    let mut defaults = Vec::new();
    if is_unset("maxPerCore") && is_unset("min") {
        let answer =
            Answer::sysctl("net.netfilter.nf_conntrack_max", "32768 times the cores, 131072 or more");
        defaults.push(("conntrack.maxPerCore", answer));
    }
    for (setting, (name, sysctl), seconds) in [
        ("conntrack.tcpEstablishedTimeout", TIMEOUTS[0], 86_400),
        ("conntrack.tcpCloseWaitTimeout", TIMEOUTS[1], 3600),
    ] {
        if is_unset(name) {
            defaults.push((setting, Answer::sysctl(sysctl, seconds)));
        }
    }
    defaults
}

/// A duration as Kubernetes writes it, such as 24h0m0s.
fn duration(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok()
}
