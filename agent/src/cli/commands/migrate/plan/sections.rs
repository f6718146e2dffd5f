//! Converts the settings, section by section.

use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;
use serde_json::Value;

use super::{
    conntrack,
    converted_setting::ConvertedSetting,
    facts::{Detection, KubeProxyFacts, Mode},
};

const HEALTHZ_PORT: u16 = 10256;
const METRICS_PORT: u16 = 10249;

const NO_PERIODS: &str =
    "every change is programmed at once, and foreign changes are noticed at once";

/// Converts a setting.
pub(super) fn convert(path: &str, value: &Value, facts: &KubeProxyFacts) -> ConvertedSetting {
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
        Some(("winkernel", _)) => ConvertedSetting::not_needed("only for Windows"),
        Some(_) => ConvertedSetting::unknown(),
    }
}

/// The defaults of kube-proxy that differ from contiv's, for settings that are not set.
pub(super) fn defaults(facts: &KubeProxyFacts) -> Vec<(&'static str, ConvertedSetting)> {
    let mut defaults = Vec::new();
    if !facts.has_healthz {
        let address = format!("{}:{HEALTHZ_PORT}", facts.any_address);
        defaults.push((
            "healthzBindAddress",
            ConvertedSetting::set("healthz-listen", address),
        ));
    }
    if facts.detection == Detection::ClusterCidr(Vec::new()) {
        defaults.push(("clusterCIDR", ConvertedSetting::set("local-detect", "none")));
    }
    if facts.mode != Mode::Nftables && !facts.has_node_port_addresses {
        defaults.push((
            "nodePortAddresses",
            ConvertedSetting::set("node-port-addresses", texts(["all"])),
        ));
    }
    if facts.mode == Mode::Iptables && !facts.has_localhost_node_ports {
        let detail = "kube-proxy serves node ports on 127.0.0.1 too; if a client needs that, set node-ports-on-loopback = true";
        defaults.push((
            "iptables.localhostNodePorts",
            ConvertedSetting::by_hand(detail),
        ));
    }
    defaults.extend(conntrack::defaults(&facts.conntrack));
    defaults
}

fn top_level(name: &str, value: &Value, facts: &KubeProxyFacts) -> ConvertedSetting {
    let text = value.as_str().unwrap_or_default();
    match name {
        "mode" => match facts.mode {
            Mode::Iptables | Mode::Nftables => {
                ConvertedSetting::not_needed("contiv programs nftables itself")
            }
            Mode::Ipvs => ConvertedSetting::not_needed(
                "contiv programs nftables itself; remove kube-ipvs0 with kube-proxy's rules",
            ),
            Mode::Other => ConvertedSetting::by_hand("not a mode of kube-proxy on Linux"),
        },
        "hostnameOverride" => ConvertedSetting::set("node-name", text),
        "bindAddress" => match text.parse::<IpAddr>() {
            Ok(ip) if ip.is_unspecified() => {
                ConvertedSetting::same("the addresses of the Node object")
            }
            Ok(ip) => ConvertedSetting::set("node-ips", texts([ip.to_string().as_str()])),
            Err(_) => ConvertedSetting::bad_value(),
        },
        "healthzBindAddress" => listen(text, HEALTHZ_PORT, |address| {
            ConvertedSetting::set("healthz-listen", address)
        }),
        // Scrapers of kube-proxy use this address.
        "metricsBindAddress" => listen(text, METRICS_PORT, |address| {
            let settings = [
                ("metrics-listen", address.into()),
                ("kube-proxy-metrics", true.into()),
            ];
            ConvertedSetting::set_all(settings)
        }),
        "bindAddressHardFail" => match value.as_bool() {
            Some(true) => ConvertedSetting::by_hand(
                "an address of healthz-listen or metrics-listen that is in use is retried; one of listen ends the agent",
            ),
            Some(false) => ConvertedSetting::same(
                "an address of healthz-listen or metrics-listen that is in use is retried; one of listen ends the agent",
            ),
            None => ConvertedSetting::bad_value(),
        },
        "enableProfiling" => match value.as_bool() {
            Some(true) => ConvertedSetting::by_hand(
                "contiv has no profiling endpoint; use contiv support-bundle",
            ),
            Some(false) => ConvertedSetting::same("contiv has no profiling endpoint"),
            None => ConvertedSetting::bad_value(),
        },
        "clusterCIDR" => match &facts.detection {
            Detection::ClusterCidr(ranges) if is_ranges(ranges) => {
                ConvertedSetting::set("pod-cidrs", texts(ranges.iter().map(String::as_str)))
            }
            Detection::ClusterCidr(_) => ConvertedSetting::bad_value(),
            _ => ConvertedSetting::not_needed("only for detectLocalMode ClusterCIDR"),
        },
        "detectLocalMode" => match &facts.detection {
            Detection::ClusterCidr(ranges) if ranges.is_empty() => {
                ConvertedSetting::same("clusterCIDR is not set: see that line")
            }
            Detection::ClusterCidr(_) => ConvertedSetting::same("by pod-cidrs"),
            Detection::NodeCidr => ConvertedSetting::same(
                "local-detect = \"pod-cidrs\", with the ranges of the Node object",
            ),
            Detection::Bridge(name) => {
                ConvertedSetting::set("local-detect", format!("interfaces:{name}"))
            }
            Detection::Prefix(prefix) => {
                ConvertedSetting::set("local-detect", format!("interfaces:{prefix}*"))
            }
            Detection::Invalid => ConvertedSetting::bad_value(),
        },
        "nodePortAddresses" => node_port_addresses(value),
        "oomScoreAdj" => ConvertedSetting::not_needed(
            "Kubernetes sets it by the pod's priority, systemd by OOMScoreAdjust=",
        ),
        "configSyncPeriod" => ConvertedSetting::not_needed("the API server is watched"),
        "portRange" | "udpIdleTimeout" | "resourceContainer" => {
            ConvertedSetting::not_needed("kube-proxy does not use it any more")
        }
        "showHiddenMetricsForVersion" => ConvertedSetting::not_needed("no metric is hidden"),
        "windowsRunAsService" => ConvertedSetting::not_needed("only for Windows"),
        _ => ConvertedSetting::unknown(),
    }
}

fn iptables(name: &str, value: &Value, mode: Mode) -> ConvertedSetting {
    match name {
        _ if !matches!(mode, Mode::Iptables | Mode::Ipvs) => {
            ConvertedSetting::not_needed("only for the modes iptables and ipvs")
        }
        "masqueradeBit" => marks_not_needed(),
        "masqueradeAll" => masquerade_all(value),
        "localhostNodePorts" => match value.as_bool() {
            _ if mode == Mode::Ipvs => ConvertedSetting::not_needed("only for the mode iptables"),
            Some(true) => ConvertedSetting::set("node-ports-on-loopback", true),
            Some(false) => ConvertedSetting::same("node ports do not answer on 127.0.0.1"),
            None => ConvertedSetting::bad_value(),
        },
        "snatNodeInternalIP" => match value.as_bool() {
            Some(true) => ConvertedSetting::by_hand(
                "contiv masquerades with the address of the interface that a packet leaves by",
            ),
            Some(false) => ConvertedSetting::same(
                "contiv masquerades with the address of the interface that a packet leaves by",
            ),
            None => ConvertedSetting::bad_value(),
        },
        "syncPeriod" | "minSyncPeriod" => ConvertedSetting::not_needed(NO_PERIODS),
        _ => ConvertedSetting::unknown(),
    }
}

fn ipvs(name: &str, value: &Value, mode: Mode) -> ConvertedSetting {
    match name {
        "scheduler" | "excludeCIDRs" | "strictARP" | "tcpTimeout" | "tcpFinTimeout"
        | "udpTimeout" | "syncPeriod" | "minSyncPeriod"
            if mode != Mode::Ipvs =>
        {
            ConvertedSetting::not_needed("only for the mode ipvs")
        }
        "scheduler" => match value.as_str() {
            Some("rr" | "wrr") => ConvertedSetting::same(
                "connections are balanced evenly, or by weight if there are weights",
            ),
            Some("sh" | "mh") => ConvertedSetting::by_hand(
                "set sessionAffinity or the annotation contiv.io/balance: client-address on each service that needs it",
            ),
            _ => ConvertedSetting::by_hand(
                "contiv balances at random, by weight if there are weights",
            ),
        },
        "excludeCIDRs" => ConvertedSetting::not_needed("contiv touches nothing but its own table"),
        "strictARP" => ConvertedSetting::not_needed(
            "service addresses are on no interface, so the node does not answer ARP for them",
        ),
        "tcpTimeout" | "tcpFinTimeout" | "udpTimeout" => ConvertedSetting::not_needed(
            "timeouts of IPVS; here those of conntrack apply: see the section conntrack",
        ),
        "syncPeriod" | "minSyncPeriod" => ConvertedSetting::not_needed(NO_PERIODS),
        _ => ConvertedSetting::unknown(),
    }
}

fn nftables(name: &str, value: &Value, mode: Mode) -> ConvertedSetting {
    match name {
        "masqueradeBit" | "masqueradeAll" | "syncPeriod" | "minSyncPeriod"
            if mode != Mode::Nftables =>
        {
            ConvertedSetting::not_needed("only for the mode nftables")
        }
        "masqueradeBit" => marks_not_needed(),
        "masqueradeAll" => masquerade_all(value),
        "syncPeriod" | "minSyncPeriod" => ConvertedSetting::not_needed(NO_PERIODS),
        _ => ConvertedSetting::unknown(),
    }
}

fn marks_not_needed() -> ConvertedSetting {
    ConvertedSetting::not_needed("packets are not marked")
}

fn masquerade_all(value: &Value) -> ConvertedSetting {
    match value.as_bool() {
        Some(true) => ConvertedSetting::set("masquerade-all", true),
        Some(false) => ConvertedSetting::same("masquerade-all = false"),
        None => ConvertedSetting::bad_value(),
    }
}

fn client(name: &str) -> ConvertedSetting {
    match name {
        "kubeconfig" => ConvertedSetting::same(
            "store: the pod's service account; elsewhere a separate kubeconfig",
        ),
        "acceptContentTypes" | "contentType" => {
            ConvertedSetting::not_needed("contiv chooses the format itself")
        }
        "qps" | "burst" => {
            ConvertedSetting::not_needed("there are a list and a watch for each type")
        }
        _ => ConvertedSetting::unknown(),
    }
}

fn detect_local(name: &str, facts: &KubeProxyFacts) -> ConvertedSetting {
    match (name, &facts.detection) {
        ("bridgeInterface", Detection::Bridge(_))
        | ("interfaceNamePrefix", Detection::Prefix(_)) => {
            ConvertedSetting::same("in local-detect, by detectLocalMode")
        }
        ("bridgeInterface", _) => {
            ConvertedSetting::not_needed("only for detectLocalMode BridgeInterface")
        }
        ("interfaceNamePrefix", _) => {
            ConvertedSetting::not_needed("only for detectLocalMode InterfaceNamePrefix")
        }
        _ => ConvertedSetting::unknown(),
    }
}

fn feature_gate(value: &Value) -> ConvertedSetting {
    match value.as_bool() {
        Some(true) => ConvertedSetting::not_needed(
            "contiv has no feature gates: every feature is on (docs/proof/behaviour.md)",
        ),
        Some(false) => ConvertedSetting::by_hand(
            "contiv has no feature gates: every feature is on (docs/proof/behaviour.md)",
        ),
        None => ConvertedSetting::bad_value(),
    }
}

fn logging(name: &str, value: &Value) -> ConvertedSetting {
    match (name, value.as_str(), value.as_u64()) {
        ("format", Some("json"), _) => ConvertedSetting::set("log-format", "json"),
        ("format", Some("text"), _) => ConvertedSetting::same("log-format = \"text\""),
        ("verbosity", _, Some(0..=3)) => ConvertedSetting::same("log-level = \"info\""),
        ("verbosity", _, Some(_)) => ConvertedSetting::set("log-level", "debug"),
        ("vmodule", Some(_), _) => {
            ConvertedSetting::by_hand("log-level = \"info,MODULE=debug\", with contiv's modules")
        }
        ("flushFrequency", ..) => ConvertedSetting::not_needed("every line is written at once"),
        ("format" | "verbosity", ..) => ConvertedSetting::bad_value(),
        (name, ..) if name.starts_with("options.") => {
            ConvertedSetting::not_needed("all lines go to standard error")
        }
        _ => ConvertedSetting::unknown(),
    }
}

/// An address to listen on; kube-proxy completes it with its port.
fn listen(text: &str, port: u16, set: impl Fn(String) -> ConvertedSetting) -> ConvertedSetting {
    let socket = text
        .parse::<SocketAddr>()
        .or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, port)));
    socket.map_or_else(
        |_| ConvertedSetting::bad_value(),
        |socket| set(socket.to_string()),
    )
}

/// A list of keywords and ranges. contiv has a separate setting for loopback, and `all` makes the other entries superfluous.
fn node_port_addresses(value: &Value) -> ConvertedSetting {
    let entries: Option<Vec<&str>> = value
        .as_array()
        .and_then(|list| list.iter().map(Value::as_str).collect());
    let Some(entries) = entries else {
        return ConvertedSetting::bad_value();
    };
    let is_range = |text: &str| text.contains('/') && text.parse::<IpNetwork>().is_ok();
    if !entries
        .iter()
        .all(|entry| matches!(*entry, "primary" | "localhost" | "all") || is_range(entry))
    {
        return ConvertedSetting::bad_value();
    }
    let is_loopback = |entry: &&str| {
        *entry == "localhost"
            || entry
                .parse::<IpNetwork>()
                .is_ok_and(|range| range.ip().is_loopback())
    };
    let (loopback, mut others): (Vec<&str>, Vec<&str>) = entries.into_iter().partition(is_loopback);
    if others.contains(&"all") {
        others = vec!["all"];
    }
    let addresses = ("node-port-addresses", texts(others.iter().copied()));
    match (loopback.is_empty(), others.is_empty()) {
        (_, true) => ConvertedSetting::by_hand(
            "contiv cannot serve node ports on loopback only; node-ports-on-loopback adds it to other addresses",
        ),
        (true, false) => ConvertedSetting::set_all([addresses]),
        (false, false) => {
            ConvertedSetting::set_all([addresses, ("node-ports-on-loopback", true.into())])
        }
    }
}

fn is_ranges(ranges: &[String]) -> bool {
    ranges
        .iter()
        .all(|range| range.parse::<IpNetwork>().is_ok())
}

fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> toml::Value {
    toml::Value::Array(
        texts
            .into_iter()
            .map(|text| toml::Value::String(text.to_owned()))
            .collect(),
    )
}
