use std::{fs, path::Path};

use clap::{Args as _, Command, FromArgMatches};
use contiv_model::{
    FailoverMode, LocalDetect, NodeName, NodePortAddresses, ProcessorConfig, ServiceInterfaces,
};
use contiv_renderer::route::{AddressKind, DirectOptions, Grouping, RouteOptions};
use contiv_store::etcd::EtcdAccess;

use super::*;

/// The configuration of the file, with these flags on top.
fn load(file: &str, flags: &[&str]) -> Result<Config, ConfigError> {
    let command = ConfigFlags::<Config>::augment_args(Command::new("test").no_binary_name(true));
    let matches = command
        .try_get_matches_from(flags)
        .map_err(|error| ConfigError::one(error.to_string()))?;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.toml");
    fs::write(&path, file).unwrap();
    Config::load(
        Some(&path),
        &ConfigFlags::from_arg_matches(&matches).unwrap(),
    )
}

fn problem(file: &str, flags: &[&str]) -> String {
    load(file, flags).unwrap_err().to_string()
}

/// Every key, with a value that is not the default, as in the file and as a flag.
const VALUES: [(&str, &str, &str); 58] = [
    ("node-name", "\"n1\"", "n2"),
    ("store", "\"etcds://127.0.0.1:1\"", "dir:/2"),
    ("etcd-ca-file", "\"/1\"", "/2"),
    ("etcd-cert-file", "\"/1\"", "/2"),
    ("etcd-key-file", "\"/1\"", "/2"),
    ("etcd-user", "\"one\"", "two"),
    ("etcd-password-file", "\"/1\"", "/2"),
    ("renderers", "[\"dry-run\"]", "dry-run,nftables"),
    ("own-table", "false", "true"),
    ("route-advertise", "[\"cluster\"]", "cluster,load-balancer"),
    ("route-advertise-table", "1067", "1068"),
    ("route-withdraw-on-stop", "true", "false"),
    ("route-reach-from-node", "false", "true"),
    ("route-node-table", "1069", "1070"),
    ("route-direct", "true", "false"),
    ("route-direct-table", "1071", "1072"),
    ("route-nexthops", "\"plain\"", "resilient"),
    ("route-nexthop-idle", "\"30s\"", "1m"),
    ("listen", "\"[::1]:1\"", "[::1]:2"),
    ("healthz-listen", "\"0.0.0.0:10256\"", "[::]:10256"),
    ("metrics-listen", "\"0.0.0.0:10249\"", "[::]:10249"),
    ("metrics-cert-file", "\"/a/tls.crt\"", "/b/tls.crt"),
    ("metrics-key-file", "\"/a/tls.key\"", "/b/tls.key"),
    ("metrics-token-file", "\"/a/tokens\"", "/b/tokens"),
    ("metrics-token-review", "true", "false"),
    ("kube-proxy-metrics", "true", "false"),
    ("state-dir", "\"/1\"", "/2"),
    ("log-format", "\"json\"", "text"),
    ("log-level", "\"debug\"", "warn,contiv_store=trace"),
    (
        "node-ips",
        "[\"10.0.0.1\", \"fd00::1\"]",
        "10.0.0.2,fd00::2",
    ),
    (
        "node-port-addresses",
        "[\"all\", \"10.0.0.0/8\"]",
        "primary,fd00::/8",
    ),
    ("node-ports-on-loopback", "true", "false"),
    ("external-interfaces", "[\"eth0\"]", "bond*"),
    (
        "service-interfaces",
        "[\"pods\", \"cni0\"]",
        "external,flannel*",
    ),
    ("local-detect", "\"interfaces:cni0,veth*\"", "none"),
    ("masquerade-all", "true", "false"),
    ("masquerade-egress", "true", "false"),
    (
        "non-masquerade-cidrs",
        "[\"10.0.0.0/8\"]",
        "10.0.0.0/8,fd00::/8",
    ),
    ("pod-cidrs", "[\"10.1.0.0/16\"]", "10.2.0.0/16"),
    (
        "service-cidrs",
        "[\"10.96.0.0/12\"]",
        "10.96.0.0/12,fd00:96::/112",
    ),
    ("service-proxy-name", "\"contiv\"", "other"),
    ("zone", "\"a\"", "b"),
    ("local-endpoint-weight", "3", "4"),
    ("contiv-local-policy", "true", "false"),
    ("source-ranges-on-node-ports", "true", "false"),
    ("mass-deletion-percent", "80", "0"),
    ("mass-deletion-wait", "\"5m\"", "10s"),
    ("service-counters", "10", "20"),
    ("failover", "\"observe\"", "on"),
    ("failover-answer-within", "\"500ms\"", "2s"),
    ("self-check", "true", "false"),
    ("verify-interval", "\"1m\"", "2m"),
    ("verify-heal", "false", "true"),
    ("history-events", "5", "6"),
    ("history-age", "\"7m\"", "8m"),
    ("history-bytes", "100000", "200000"),
    (
        "otlp-endpoint",
        "\"http://127.0.0.1:1\"",
        "https://collector:4318",
    ),
    ("otlp-flows", "true", "false"),
];

#[test]
fn every_key_of_file_counts_and_its_flag_counts_more() {
    let keys: Vec<&str> = VALUES.iter().map(|(key, _, _)| *key).collect();
    assert_eq!(flags::keys::<Config>(), keys, "a key is missing here");
    let named = load("node-name = \"n\"", &[]).unwrap();
    for (key, in_file, as_flag) in VALUES {
        let file = format!("{key} = {in_file}\n");
        let file = if key == "node-name" {
            file
        } else {
            file + "node-name = \"n\"\n"
        };
        let of_file = load(&file, &[]).unwrap();
        assert_ne!(of_file, named, "{key}");
        let of_flag = load(&file, &[&format!("--{key}={as_flag}")]).unwrap();
        assert_ne!(of_flag, of_file, "{key}");
        let flag_alone = load("node-name = \"n\"", &[&format!("--{key}={as_flag}")]).unwrap();
        assert_eq!(of_flag, flag_alone, "{key}: the file's value is gone");
    }
}

#[test]
fn effective_configuration_reads_back_the_same() {
    let lines: Vec<String> = VALUES
        .iter()
        .map(|(key, value, _)| format!("{key} = {value}"))
        .collect();
    let file = lines.join("\n");
    let config = load(&file, &[]).unwrap();
    assert_eq!(load(&config.to_toml().unwrap(), &[]).unwrap(), config);
}

#[test]
fn every_setting_of_processor_is_key() {
    let lines: Vec<String> = VALUES
        .iter()
        .map(|(key, value, _)| format!("{key} = {value}"))
        .collect();
    let expected = ProcessorConfig {
        node_name: NodeName::new("n1"),
        local_endpoint_weight: 3,
        node_ips: ["10.0.0.1", "fd00::1"]
            .map(|address| address.parse().unwrap())
            .into(),
        node_port_addresses: [
            NodePortAddresses::All,
            NodePortAddresses::Within("10.0.0.0/8".parse().unwrap()),
        ]
        .into(),
        node_ports_on_loopback: true,
        external_interfaces: ["eth0".parse().unwrap()].into(),
        service_interfaces: [
            ServiceInterfaces::Pods,
            ServiceInterfaces::Named("cni0".parse().unwrap()),
        ]
        .into(),
        local_detect: LocalDetect::Interfaces(
            ["cni0", "veth*"].map(|name| name.parse().unwrap()).into(),
        ),
        masquerade_all: true,
        masquerade_egress: true,
        non_masquerade_cidrs: ["10.0.0.0/8".parse().unwrap()].into(),
        service_proxy_name: Some("contiv".into()),
        pod_cidrs: ["10.1.0.0/16".parse().unwrap()].into(),
        service_cidrs: ["10.96.0.0/12".parse().unwrap()].into(),
        zone: Some("a".into()),
        source_ranges_on_node_ports: true,
        contiv_local_policy: true,
        route_runs: false,
        route_all: true,
        failover: FailoverMode::Observe,
    };
    assert_eq!(load(&lines.join("\n"), &[]).unwrap().processor(), expected);
    let defaults = ProcessorConfig::new(NodeName::new("n1"));
    assert_eq!(
        load("node-name = \"n1\"", &[]).unwrap().processor(),
        defaults
    );
}

#[test]
fn etcd_keys_reach_the_etcd_client() {
    let file = "store = \"etcds://a:1\"\netcd-ca-file = \"/ca\"\netcd-cert-file = \"/cert\"\n\
                etcd-key-file = \"/key\"\netcd-user = \"contiv\"\netcd-password-file = \"/password\"";
    let expected = EtcdAccess {
        tls: true,
        ca_file: Some("/ca".into()),
        cert_file: Some("/cert".into()),
        key_file: Some("/key".into()),
        user: Some("contiv".to_owned()),
        password_file: Some("/password".into()),
    };
    assert_eq!(load(file, &[]).unwrap().etcd_access(), expected);
    let none = ["--etcd-ca-file=", "--etcd-cert-file=", "--etcd-key-file="];
    let without = load(
        file,
        &[&none[..], &["--etcd-user=", "--etcd-password-file="]].concat(),
    )
    .unwrap();
    assert_eq!(
        without.etcd_access(),
        EtcdAccess {
            tls: true,
            ..EtcdAccess::default()
        }
    );
    let ignored = load("etcd-user = \"contiv\"", &[]);
    assert!(
        ignored.is_ok(),
        "with a folder it does not matter: {ignored:?}"
    );
}

#[test]
fn every_setting_of_route_renderer_is_key() {
    let lines: Vec<String> = VALUES
        .iter()
        .map(|(key, value, _)| format!("{key} = {value}"))
        .collect();
    let expected = RouteOptions {
        advertise: [AddressKind::Cluster].into_iter().collect(),
        advertise_table: 1067,
        reach_from_node: false,
        node_table: 1069,
        direct: DirectOptions {
            table: 1071,
            grouping: Grouping::Plain,
        },
    };
    assert_eq!(load(&lines.join("\n"), &[]).unwrap().routes(), expected);
    assert_eq!(
        load("node-name = \"n1\"", &[]).unwrap().routes(),
        RouteOptions::default()
    );
    let idle = load("node-name = \"n1\"", &["--route-nexthop-idle=3s"])
        .unwrap()
        .routes()
        .direct
        .grouping;
    assert_eq!(idle, Grouping::Resilient { idle: 3 });
}

#[test]
fn flag_unsets_a_key_of_the_file() {
    let file = "node-name = \"n\"\nzone = \"a\"\nhealthz-listen = \"[::]:1\"";
    let config = load(file, &["--zone=", "--healthz-listen="]).unwrap();
    assert_eq!(config, load("node-name = \"n\"", &[]).unwrap());
}

#[test]
fn commented_default_file_documents_every_key_with_its_default() {
    let text = include_str!("../../../systemd/agent.toml");
    // Commented keys have no space after the sign; sentences do.
    let uncommented: String = text
        .lines()
        .map(|line| {
            line.strip_prefix('#')
                .filter(|rest| !rest.starts_with(' '))
                .unwrap_or(line)
                .to_owned()
                + "\n"
        })
        .collect();
    assert_eq!(
        file::parse::<Config>("agent.toml", &uncommented).unwrap(),
        Config::default()
    );
    assert_eq!(
        file::parse::<Config>("agent.toml", text).unwrap(),
        Config::default()
    );
    let documented: toml::Table = toml::from_str(&uncommented).unwrap();
    let mut keys = flags::keys::<Config>();
    keys.sort();
    assert_eq!(documented.keys().cloned().collect::<Vec<_>>(), keys);
}

#[test]
fn unset_node_name_is_host_name_as_kubelet_has_it() {
    let name = load("", &[]).unwrap().node_name;
    assert!(
        !name.is_empty() && name == name.trim().to_lowercase(),
        "{name:?}"
    );
}

#[test]
fn unknown_keys_are_named_with_file_line_and_nearest_known_key() {
    let problems = problem("\nzzz = 1\nnode-nam = \"x\"\nlog_level = \"info\"\n", &[]);
    let lines: Vec<&str> = problems.lines().collect();
    assert_eq!(lines.len(), 3, "{problems}");
    assert!(
        lines[0].contains("agent.toml:2: unknown key \"zzz\"; valid keys: node-name, store"),
        "{problems}"
    );
    assert!(
        lines[1].ends_with("agent.toml:3: unknown key \"node-nam\"; did you mean \"node-name\"?"),
        "{problems}"
    );
    assert!(
        lines[2].ends_with("agent.toml:4: unknown key \"log_level\"; did you mean \"log-level\"?"),
        "{problems}"
    );
}

#[test]
fn wrong_value_is_named_with_file_line_and_key() {
    for (file, expected) in [
        ("\nlisten = \"127.0.0.1\"", "agent.toml:2: listen: "),
        (
            "store = \"zookeeper://a\"",
            "agent.toml:1: store: store URL \"zookeeper://a\": expected dir:PATH",
        ),
        (
            "renderers = [\"nft\"]",
            "agent.toml:1: renderers: unknown renderer \"nft\"; valid renderers: nftables",
        ),
        ("node-ips = [\"10.0.0\"]", "agent.toml:1: node-ips: "),
        (
            "service-cidrs = [\"10.96.0.0/33\"]",
            "agent.toml:1: service-cidrs: ",
        ),
        (
            "healthz-listen = \":10256\"",
            "agent.toml:1: healthz-listen: ",
        ),
        (
            "source-ranges-on-node-ports = 1",
            "agent.toml:1: source-ranges-on-node-ports: ",
        ),
        ("history-age = \"long\"", "agent.toml:1: history-age: "),
        ("history-events = -1", "agent.toml:1: history-events: "),
        ("log-format = \"xml\"", "agent.toml:1: log-format: "),
        ("\n\nstore = dir:/", "agent.toml:3: store: "),
    ] {
        let problem = problem(file, &[]);
        assert!(problem.contains(expected), "{file}: {problem}");
    }
}

#[test]
fn settings_out_of_range_are_refused_with_a_hint() {
    for (file, flags, expected) in [
        (
            "renderers = []",
            &[][..],
            "renderers: name at least one of nftables",
        ),
        (
            "",
            &["--renderers=dry-run,dry-run"],
            "renderers: dry-run is named twice",
        ),
        (
            "state-dir = \"\"",
            &[],
            "state-dir: empty; name a folder, as in /var/lib/contiv",
        ),
        (
            "service-cidrs = [\"10.96.0.1/12\"]",
            &[],
            "service-cidrs: 10.96.0.1/12 has bits beyond its prefix; write 10.96.0.0/12",
        ),
        (
            "healthz-listen = \"127.0.0.1:9999\"",
            &[],
            "healthz-listen: the debug HTTP has that address",
        ),
        (
            "metrics-listen = \"127.0.0.1:9999\"",
            &[],
            "metrics-listen: the debug HTTP has that address",
        ),
        (
            "metrics-listen = \"[::]:1\"\nhealthz-listen = \"[::]:1\"",
            &[],
            "metrics-listen: healthz-listen has that address; choose another port",
        ),
        (
            "metrics-listen = \"[::]:1\"\nmetrics-key-file = \"/key\"",
            &[],
            "metrics-key-file: it is of no use without metrics-cert-file; set both or none",
        ),
        (
            "masquerade-egress = true\nlocal-detect = \"none\"",
            &[],
            "masquerade-egress: local-detect = \"none\" cannot tell pods from others",
        ),
        (
            "masquerade-egress = true\nstore = \"etcd://a:1\"",
            &[],
            "masquerade-egress: the store etcd://a:1 has this node only",
        ),
        (
            "masquerade-egress = true\nstore = \"kube:\"",
            &[],
            "masquerade-egress: the store kube: has this node only, and the pods of others would count as external; add nodes=all",
        ),
        (
            "node-port-addresses = [\"cluster\"]\nstore = \"kube:\"",
            &[],
            "node-port-addresses: for `cluster` the store kube: has this node only; add nodes=all",
        ),
        (
            "node-port-addresses = [\"127.0.0.0/8\", \"::1/128\"]",
            &[],
            "node-port-addresses: ::1/128 is loopback; use node-ports-on-loopback for that, and name others",
        ),
        ("history-events = 0", &[], "history-events: the least is 1"),
        (
            "route-advertise-table = 254",
            &[],
            "route-advertise-table: 254 is a table of the system",
        ),
        (
            "route-node-table = 67",
            &[],
            "route-node-table: the same as route-advertise-table",
        ),
        (
            "route-direct-table = 68",
            &[],
            "route-direct-table: the same as one of the other two",
        ),
        (
            "route-nexthop-idle = \"0s\"",
            &[],
            "route-nexthop-idle: the least is 1s",
        ),
        (
            "",
            &["--route-advertise=node-port"],
            "not one of cluster, external, load-balancer",
        ),
        ("local-endpoint-weight = 0", &[], "local-endpoint-weight: "),
        (
            "store = \"etcd://a:1\"\netcd-ca-file = \"/ca\"",
            &[],
            "etcd-ca-file: the store etcd://a:1 does not use TLS; write etcds:// for one that does",
        ),
        (
            "store = \"etcds://a:1\"\netcd-cert-file = \"/cert\"",
            &[],
            "etcd-cert-file: it is of no use without etcd-key-file; set both or none",
        ),
        (
            "store = \"etcd://a:1\"\netcd-password-file = \"/password\"",
            &[],
            "etcd-password-file: it is of no use without etcd-user; set both or none",
        ),
        (
            "",
            &["--log-level=inof"],
            "log-level: \"inof\" is not a log level",
        ),
        ("", &["--log-level=a=b=c"], "log-level: "),
        (
            "",
            &["--local-endpoint-weight=0"],
            "--local-endpoint-weight",
        ),
    ] {
        let problem = problem(file, flags);
        assert!(problem.contains(expected), "{file} {flags:?}: {problem}");
    }
}

#[test]
fn loopback_beside_other_node_port_addresses_is_accepted() {
    for addresses in [
        "[\"127.0.0.0/8\", \"10.0.0.0/8\"]",
        "[\"primary\", \"::1/128\"]",
    ] {
        let text = format!("node-port-addresses = {addresses}");
        let config = file::parse::<Config>("/config", &text).unwrap();
        assert_eq!(super::check::problems(&config), [""; 0], "{addresses}");
    }
}

#[test]
fn file_that_is_named_must_be_there() {
    let path = Path::new("/nowhere/agent.toml");
    let problem = Config::load(Some(path), &ConfigFlags::default())
        .unwrap_err()
        .to_string();
    assert!(problem.contains("/nowhere/agent.toml"), "{problem}");
}

#[test]
fn configuration_of_another_version_is_read_where_known() {
    let text = "node-name = \"n1\"\nrenderers = [\"flowtable\"]\nservice-proxy-name = \"contiv\"\nfuture = { a = 1 }\n";
    assert!(file::parse::<Config>("/config", text).is_err());
    let expected = Config {
        node_name: "n1".to_owned(),
        service_proxy_name: "contiv".to_owned(),
        ..Config::default()
    };
    assert_eq!(
        file::parse_of_any_version::<Config>("/config", text),
        Ok((
            expected,
            vec![
                "future = { a = 1 }".to_owned(),
                "renderers = [\"flowtable\"]".to_owned()
            ]
        ))
    );
    assert!(file::parse_of_any_version::<Config>("/config", "node-name").is_err());
}
