//! Setting by setting, section by section.

use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;
use serde_json::Value;

use super::{
    answer::Answer,
    conntrack,
    facts::{Detection, Facts, Mode},
};

const HEALTHZ_PORT: u16 = 10256;
const METRICS_PORT: u16 = 10249;

const NO_PERIODS: &str = "changes are programmed as they come, and foreign changes are noticed at once";

/// What becomes of a setting.
pub(super) fn convert(path: &str, value: &Value, facts: &Facts) -> Answer {
    match path.split_once('.') {
        None => top_level(path, value, facts),
        Some(("iptables", name)) => iptables(name, value, facts.mode),
        Some(("ipvs", name)) => ipvs(name, value, facts.mode),
        Some(("nftables", name)) => nftables(name, value, facts.mode),
        Some(("conntrack", name)) => conntrack::convert(name, value),
        Some(("clientConnection", name)) => client(name),
        Some(("detectLocal", name)) => detect_local(name, facts),
        Some(("featureGates", _)) => feature_gate(value),
        Some(("logging", name)) => logging(name, value),
        Some(("winkernel", _)) => Answer::not_needed("for Windows"),
        Some(_) => Answer::unknown(),
    }
}

/// What kube-proxy does where nothing is said, as far as contiv does something else by default.
pub(super) fn defaults(facts: &Facts) -> Vec<(&'static str, Answer)> {
    let mut defaults = Vec::new();
    if !facts.has_healthz {
        let address = format!("{}:{HEALTHZ_PORT}", facts.any_address);
        defaults.push(("healthzBindAddress", Answer::set("healthz-listen", address)));
    }
    if facts.detection == Detection::ClusterCidr(Vec::new()) {
        defaults.push(("clusterCIDR", Answer::set("local-detect", "none")));
    }
    if facts.mode != Mode::Nftables && !facts.has_node_port_addresses {
        defaults.push(("nodePortAddresses", Answer::set("node-port-addresses", texts(["all"]))));
    }
    if facts.mode == Mode::Iptables && !facts.has_localhost_node_ports {
        let detail = "node ports on 127.0.0.1 too; where a client needs that: node-ports-on-loopback = true";
        defaults.push(("iptables.localhostNodePorts", Answer::by_hand(detail)));
    }
    defaults.extend(conntrack::defaults(&facts.conntrack));
    defaults
}

fn top_level(name: &str, value: &Value, facts: &Facts) -> Answer {
    let text = value.as_str().unwrap_or_default();
    match name {
        "mode" => match facts.mode {
            Mode::Iptables | Mode::Nftables => Answer::not_needed("contiv programs nftables itself"),
            Mode::Ipvs => Answer::not_needed(
                "contiv programs nftables itself; remove kube-ipvs0 with kube-proxy's rules",
            ),
            Mode::Other => Answer::by_hand("not a mode of kube-proxy on Linux"),
        },
        "hostnameOverride" => Answer::set("node-name", text),
        "bindAddress" => match text.parse::<IpAddr>() {
            Ok(ip) if ip.is_unspecified() => Answer::same("the addresses of the Node object"),
            Ok(ip) => Answer::set("node-ips", texts([ip.to_string().as_str()])),
            Err(_) => Answer::bad_value(),
        },
        "healthzBindAddress" => listen("healthz-listen", text, HEALTHZ_PORT),
        "metricsBindAddress" => listen("listen", text, METRICS_PORT),
        "bindAddressHardFail" => match value.as_bool() {
            Some(true) => {
                Answer::by_hand("healthz-listen in use is tried again; listen in use ends the agent")
            }
            Some(false) => Answer::same("healthz-listen in use is tried again; listen in use ends the agent"),
            None => Answer::bad_value(),
        },
        "enableProfiling" => match value.as_bool() {
            Some(true) => {
                Answer::by_hand("there is no such thing; contiv support-bundle collects what is needed")
            }
            Some(false) => Answer::same("there is none"),
            None => Answer::bad_value(),
        },
        "clusterCIDR" => match &facts.detection {
            Detection::ClusterCidr(ranges) if is_ranges(ranges) => {
                Answer::set("pod-cidrs", texts(ranges.iter().map(String::as_str)))
            }
            Detection::ClusterCidr(_) => Answer::bad_value(),
            _ => Answer::not_needed("only for detectLocalMode ClusterCIDR"),
        },
        "detectLocalMode" => match &facts.detection {
            Detection::ClusterCidr(ranges) if ranges.is_empty() => {
                Answer::same("without clusterCIDR: see there")
            }
            Detection::ClusterCidr(_) => Answer::same("by pod-cidrs"),
            Detection::NodeCidr => {
                Answer::same("local-detect = \"pod-cidrs\", with the ranges of the Node object")
            }
            Detection::Bridge(name) => Answer::set("local-detect", format!("interfaces:{name}")),
            Detection::Prefix(prefix) => Answer::set("local-detect", format!("interfaces:{prefix}*")),
            Detection::Bad => Answer::bad_value(),
        },
        "nodePortAddresses" => node_port_addresses(value),
        "oomScoreAdj" => {
            Answer::not_needed("Kubernetes sets it by the pod's priority, systemd by OOMScoreAdjust=")
        }
        "configSyncPeriod" => Answer::not_needed("the API server is watched"),
        "portRange" | "udpIdleTimeout" | "resourceContainer" => {
            Answer::not_needed("kube-proxy does not use it any more")
        }
        "showHiddenMetricsForVersion" => Answer::not_needed("no metric is hidden"),
        "windowsRunAsService" => Answer::not_needed("for Windows"),
        _ => Answer::unknown(),
    }
}

fn iptables(name: &str, value: &Value, mode: Mode) -> Answer {
    match name {
        _ if !matches!(mode, Mode::Iptables | Mode::Ipvs) => {
            Answer::not_needed("only for the modes iptables and ipvs")
        }
        "masqueradeBit" => no_marks(),
        "masqueradeAll" => masquerade_all(value),
        "localhostNodePorts" => match value.as_bool() {
            _ if mode == Mode::Ipvs => Answer::not_needed("only for the mode iptables"),
            Some(true) => Answer::set("node-ports-on-loopback", true),
            Some(false) => Answer::same("node ports do not answer on 127.0.0.1"),
            None => Answer::bad_value(),
        },
        "snatNodeInternalIP" => match value.as_bool() {
            Some(true) => Answer::by_hand(
                "contiv masquerades with the address of the interface that a packet leaves by",
            ),
            Some(false) => Answer::same("the address of the interface that a packet leaves by"),
            None => Answer::bad_value(),
        },
        "syncPeriod" | "minSyncPeriod" => Answer::not_needed(NO_PERIODS),
        _ => Answer::unknown(),
    }
}

fn ipvs(name: &str, value: &Value, mode: Mode) -> Answer {
    match name {
        "scheduler" | "excludeCIDRs" | "strictARP" | "tcpTimeout" | "tcpFinTimeout" | "udpTimeout"
        | "syncPeriod" | "minSyncPeriod"
            if mode != Mode::Ipvs =>
        {
            Answer::not_needed("only for the mode ipvs")
        }
        "scheduler" => match value.as_str() {
            Some("rr" | "wrr") => {
                Answer::same("each backend gets its share, by weight where there are weights")
            }
            Some("sh" | "mh") => Answer::by_hand(
                "for each service that needs it: sessionAffinity, or the choice by client address",
            ),
            _ => Answer::by_hand("connections are shared out by chance, by weight where there are weights"),
        },
        "excludeCIDRs" => Answer::not_needed("contiv touches nothing but its own table"),
        "strictARP" => {
            Answer::not_needed("service addresses are on no interface, so nobody answers ARP for them")
        }
        "tcpTimeout" | "tcpFinTimeout" | "udpTimeout" => Answer::not_needed(
            "timeouts of IPVS; connections are the kernel's connection tracking's: conntrack",
        ),
        "syncPeriod" | "minSyncPeriod" => Answer::not_needed(NO_PERIODS),
        _ => Answer::unknown(),
    }
}

fn nftables(name: &str, value: &Value, mode: Mode) -> Answer {
    match name {
        "masqueradeBit" | "masqueradeAll" | "syncPeriod" | "minSyncPeriod" if mode != Mode::Nftables => {
            Answer::not_needed("only for the mode nftables")
        }
        "masqueradeBit" => no_marks(),
        "masqueradeAll" => masquerade_all(value),
        "syncPeriod" | "minSyncPeriod" => Answer::not_needed(NO_PERIODS),
        _ => Answer::unknown(),
    }
}

fn no_marks() -> Answer {
    Answer::not_needed("packets are not marked")
}

fn masquerade_all(value: &Value) -> Answer {
    match value.as_bool() {
        Some(true) => Answer::set("masquerade-all", true),
        Some(false) => Answer::same("masquerade-all = false"),
        None => Answer::bad_value(),
    }
}

fn client(name: &str) -> Answer {
    match name {
        "kubeconfig" => Answer::same("store: the pod's service account; elsewhere a kubeconfig of its own"),
        "acceptContentTypes" | "contentType" => Answer::not_needed("contiv chooses the form itself"),
        "qps" | "burst" => Answer::not_needed("there are a list and a watch for each type"),
        _ => Answer::unknown(),
    }
}

fn detect_local(name: &str, facts: &Facts) -> Answer {
    match (name, &facts.detection) {
        ("bridgeInterface", Detection::Bridge(_)) | ("interfaceNamePrefix", Detection::Prefix(_)) => {
            Answer::same("in local-detect, by detectLocalMode")
        }
        ("bridgeInterface", _) => Answer::not_needed("only for detectLocalMode BridgeInterface"),
        ("interfaceNamePrefix", _) => Answer::not_needed("only for detectLocalMode InterfaceNamePrefix"),
        _ => Answer::unknown(),
    }
}

fn feature_gate(value: &Value) -> Answer {
    match value.as_bool() {
        Some(true) => Answer::not_needed("contiv has no gates: what it has is on (docs/behaviour.md)"),
        Some(false) => Answer::by_hand("contiv has no gates: what it has is on (docs/behaviour.md)"),
        None => Answer::bad_value(),
    }
}

fn logging(name: &str, value: &Value) -> Answer {
    match (name, value.as_str(), value.as_u64()) {
        ("format", Some("json"), _) => Answer::set("log-format", "json"),
        ("format", Some("text"), _) => Answer::same("log-format = \"text\""),
        ("verbosity", _, Some(0..=3)) => Answer::same("log-level = \"info\""),
        ("verbosity", _, Some(_)) => Answer::set("log-level", "debug"),
        ("vmodule", Some(_), _) => {
            Answer::by_hand("log-level = \"info,MODULE=debug\", with contiv's modules")
        }
        ("flushFrequency", ..) => Answer::not_needed("lines are written as they come"),
        ("format" | "verbosity", ..) => Answer::bad_value(),
        (name, ..) if name.starts_with("options.") => Answer::not_needed("all lines go to standard error"),
        _ => Answer::unknown(),
    }
}

/// An address to listen on; kube-proxy completes it with its port.
fn listen(key: &'static str, text: &str, port: u16) -> Answer {
    let socket =
        text.parse::<SocketAddr>().or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, port)));
    socket.map_or_else(|_| Answer::bad_value(), |socket| Answer::set(key, socket.to_string()))
}

/// A list of keywords and ranges. That of loopback is a switch of its own, and `all` goes before all others.
fn node_port_addresses(value: &Value) -> Answer {
    let entries: Option<Vec<&str>> =
        value.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
    let Some(entries) = entries else { return Answer::bad_value() };
    let is_range = |text: &str| text.contains('/') && text.parse::<IpNetwork>().is_ok();
    if !entries.iter().all(|entry| matches!(*entry, "primary" | "localhost" | "all") || is_range(entry)) {
        return Answer::bad_value();
    }
    let is_loopback = |entry: &&str| {
        *entry == "localhost" || entry.parse::<IpNetwork>().is_ok_and(|range| range.ip().is_loopback())
    };
    let (loopback, mut others): (Vec<&str>, Vec<&str>) = entries.into_iter().partition(is_loopback);
    if others.contains(&"all") {
        others = vec!["all"];
    }
    let addresses = ("node-port-addresses", texts(others.iter().copied()));
    match (loopback.is_empty(), others.is_empty()) {
        (_, true) => {
            Answer::by_hand("loopback alone cannot be had; node-ports-on-loopback adds it to other addresses")
        }
        (true, false) => Answer::set_all([addresses]),
        (false, false) => Answer::set_all([addresses, ("node-ports-on-loopback", true.into())]),
    }
}

fn is_ranges(ranges: &[String]) -> bool {
    ranges.iter().all(|range| range.parse::<IpNetwork>().is_ok())
}

fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> toml::Value {
    toml::Value::Array(texts.into_iter().map(|text| toml::Value::String(text.to_owned())).collect())
}
