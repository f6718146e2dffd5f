//! Golden files: a configuration of kube-proxy, the output of `--check` for it, and agent.toml. `CONTIV_UPDATE_GOLDENS=1` rewrites
//! the last two.

use std::{env, fs, path::PathBuf};

use serde_json::{Value, json};

use super::{document, is_of_kube_proxy, plan, table};
use crate::config::Config;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("src/cli/commands/migrate/golden")
        .join(name)
}

fn compare(name: &str, text: &str) {
    let path = golden(name);
    if env::var_os("CONTIV_UPDATE_GOLDENS").is_some() {
        fs::write(&path, text).unwrap();
    }
    assert_eq!(
        text,
        fs::read_to_string(&path).unwrap_or_default(),
        "{}",
        path.display()
    );
}

/// Compares with the goldens, and returns whether all is converted.
fn check(name: &str) -> bool {
    let input = fs::read_to_string(golden(&format!("{name}.yaml"))).unwrap();
    let migration = plan::migrate(&document::find(&input).unwrap());
    compare(
        &format!("{name}.txt"),
        &table(&migration).within(None).to_string(),
    );
    let config = migration.agent_toml();
    compare(&format!("{name}.toml"), &config);
    let config = toml::from_str::<Config>(&config).expect("the agent takes it");
    let values: Value = serde_saphyr::from_str(&migration.chart_values()).expect("YAML");
    let as_values: Config =
        serde_json::from_value(values["agent"]["config"].clone()).expect("the agent takes them");
    assert_eq!(
        Config {
            node_name: config.node_name.clone(),
            ..as_values
        },
        config
    );
    !migration.lines.iter().any(plan::Line::needs_attention)
}

#[test]
fn configuration_of_kubeadm_is_converted() {
    assert!(check("kubeadm"));
}

#[test]
fn tuned_ipvs_is_partly_converted() {
    assert!(!check("ipvs"));
}

#[test]
fn tuned_nftables_is_partly_converted() {
    assert!(!check("nftables"));
}

#[test]
fn unknown_settings_and_values_are_named() {
    assert!(!check("unknown"));
}

fn configuration(change: impl Fn(&mut Value)) -> Value {
    let mut configuration = json!({ "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration" });
    change(&mut configuration);
    configuration
}

fn config(change: impl Fn(&mut Value)) -> Config {
    toml::from_str(&plan::migrate(&configuration(change)).agent_toml()).unwrap()
}

#[test]
fn differing_defaults_of_kube_proxy_become_settings() {
    let config = config(|_| {});
    assert_eq!(
        config.healthz_listen.0,
        Some("0.0.0.0:10256".parse().unwrap())
    );
    assert_eq!(config.local_detect.to_string(), "none");
    assert_eq!(
        config
            .node_port_addresses
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["all"]
    );
}

#[test]
fn all_settings_of_kube_proxy_are_known() {
    // Every field of v1alpha1 in Kubernetes 1.36, with some value.
    let all = configuration(|it| {
        let sections = json!({
            "featureGates": { "A": true }, "hostnameOverride": "a", "bindAddress": "0.0.0.0",
            "clientConnection": { "kubeconfig": "a", "acceptContentTypes": "a", "contentType": "a", "qps": 1, "burst": 1 },
            "logging": { "format": "text", "flushFrequency": 5, "verbosity": 2, "vmodule": "a=1",
                "options": { "text": { "splitStream": true }, "json": { "infoBufferSize": "0" } } },
            "healthzBindAddress": "0.0.0.0:10256", "metricsBindAddress": "127.0.0.1:10249", "bindAddressHardFail": true,
            "enableProfiling": false, "showHiddenMetricsForVersion": "1.30", "mode": "iptables",
            "iptables": { "masqueradeBit": 14, "masqueradeAll": true, "localhostNodePorts": true,
                "snatNodeInternalIP": true, "syncPeriod": "30s", "minSyncPeriod": "1s" },
            "ipvs": { "syncPeriod": "30s", "minSyncPeriod": "1s", "scheduler": "rr", "excludeCIDRs": ["10.0.0.0/8"],
                "strictARP": true, "tcpTimeout": "1s", "tcpFinTimeout": "1s", "udpTimeout": "1s" },
            "nftables": { "masqueradeBit": 14, "masqueradeAll": true, "syncPeriod": "30s", "minSyncPeriod": "1s" },
            "winkernel": { "networkName": "a", "sourceVip": "a", "enableDSR": true, "rootHnsEndpointName": "a",
                "forwardHealthCheckVip": true },
            "detectLocalMode": "ClusterCIDR", "detectLocal": { "bridgeInterface": "a", "interfaceNamePrefix": "a" },
            "clusterCIDR": "10.244.0.0/16", "nodePortAddresses": ["primary"], "oomScoreAdj": -999,
            "conntrack": { "maxPerCore": 1, "min": 1, "tcpEstablishedTimeout": "24h0m0s", "tcpCloseWaitTimeout": "1h0m0s",
                "tcpBeLiberal": true, "udpTimeout": "30s", "udpStreamTimeout": "1m0s" },
            "configSyncPeriod": "15m0s", "portRange": "1-2", "windowsRunAsService": true,
        });
        it.as_object_mut()
            .unwrap()
            .extend(sections.as_object().unwrap().clone());
    });
    for mode in ["iptables", "ipvs", "nftables"] {
        let mut all = all.clone();
        all["mode"] = json!(mode);
        let unknown: Vec<_> = plan::migrate(&all)
            .lines
            .into_iter()
            .filter(|line| line.conversion == plan::Conversion::Unknown)
            .collect();
        assert_eq!(unknown, [], "{mode}");
    }
}

#[test]
fn detect_local_mode_is_converted() {
    for (mode, cidr, expected) in [
        ("NodeCIDR", "10.244.0.0/16", ("pod-cidrs", 0)),
        ("BridgeInterface", "", ("interfaces:cni0", 0)),
        ("InterfaceNamePrefix", "", ("interfaces:veth*", 0)),
        (
            "ClusterCIDR",
            "10.244.0.0/16,fd00:244::/56",
            ("pod-cidrs", 2),
        ),
        ("", "", ("none", 0)),
    ] {
        let config = config(|it| {
            it["detectLocalMode"] = json!(mode);
            it["clusterCIDR"] = json!(cidr);
            it["detectLocal"] = json!({ "bridgeInterface": "cni0", "interfaceNamePrefix": "veth" });
        });
        assert_eq!(
            (
                config.local_detect.to_string().as_str(),
                config.pod_cidrs.len()
            ),
            expected,
            "{mode}"
        );
    }
}

#[test]
fn configuration_is_found_in_config_maps_and_lists() {
    let inner =
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: ipvs\n";
    let map = json!({ "kind": "ConfigMap", "data": { "config.conf": inner, "kubeconfig.conf": "kind: Config\n" } });
    let list = json!({ "kind": "List", "items": [{ "kind": "Service" }, map] });
    for text in [
        inner.to_owned(),
        map.to_string(),
        list.to_string(),
        format!("---\nkind: Other\n---\n{inner}"),
    ] {
        assert_eq!(document::find(&text).unwrap()["mode"], "ipvs", "{text}");
        assert!(is_of_kube_proxy(&text), "{text}");
    }
    let converted = "# converted from a KubeProxyConfiguration\nmasquerade-all = true\n";
    assert!(!is_of_kube_proxy(converted), "{converted}");
    let error = |text: &str| format!("{:#}", document::find(text).unwrap_err());
    assert!(error("kind: Service\n").contains("there is no KubeProxyConfiguration"));
    assert!(error(&format!("{inner}---\n{inner}")).contains("there are 2"));
    assert!(
        error(&inner.replace("v1alpha1", "v1beta1"))
            .contains("kubeproxy.config.k8s.io/v1beta1; only")
    );
}
