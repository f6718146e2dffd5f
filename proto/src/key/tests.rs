use proptest::prelude::*;

use super::*;

fn key(kind: Kind, namespace: &str, name: &str) -> Key {
    Key::new(kind, namespace, name).unwrap()
}

/// The keys as Contiv writes them in an existing cluster.
fn golden() -> [(&'static str, Key, &'static str); 9] {
    [
        (
            "/vnf-agent/contiv-ksr/k8s/pod/web-0/namespace/default",
            key(Kind::Pod, "default", "web-0"),
            "pod default/web-0",
        ),
        (
            "/vnf-agent/contiv-ksr/k8s/service/web/namespace/default",
            key(Kind::Service, "default", "web"),
            "service default/web",
        ),
        (
            "/vnf-agent/contiv-ksr/k8s/endpoints/web/namespace/default",
            key(Kind::Endpoints, "default", "web"),
            "endpoints default/web",
        ),
        (
            "/vnf-agent/contiv-ksr/k8s/endpointslice/web-x7k2p/namespace/default",
            key(Kind::EndpointSlice, "default", "web-x7k2p"),
            "endpointslice default/web-x7k2p",
        ),
        (
            "/vnf-agent/contiv-ksr/k8s/externalworkload/vm-1/namespace/default",
            key(Kind::ExternalWorkload, "default", "vm-1"),
            "externalworkload default/vm-1",
        ),
        (
            "/vnf-agent/contiv-ksr/k8s/node/n1",
            key(Kind::Node, "", "n1"),
            "node n1",
        ),
        (
            "/vnf-agent/contiv-ksr/k8s/namespace/default",
            key(Kind::Namespace, "", "default"),
            "namespace default",
        ),
        (
            "/vnf-agent/contiv-ksr/allocatedIDs/2",
            key(Kind::VppNode, "", "2"),
            "vppnode 2",
        ),
        (
            "/vnf-agent/contiv-ksr/custom-ipam/web-0/default",
            key(Kind::IpAllocation, "default", "web-0"),
            "custom-ipam default/web-0",
        ),
    ]
}

#[test]
fn keys_are_those_of_contiv_both_ways() {
    for (path, key, words) in golden() {
        assert_eq!(key.to_path(), path);
        assert_eq!(Key::parse(path), Ok(Some(key.clone())));
        assert_eq!(key.to_string(), words);
    }
}

#[test]
fn prefix_of_type_begins_its_keys_and_no_others() {
    for (path, key, _) in golden() {
        for kind in Kind::ALL {
            assert_eq!(
                path.starts_with(&Key::prefix(kind)),
                kind == key.kind(),
                "{path} {kind}"
            );
        }
    }
}

#[test]
fn keys_that_are_not_ours_are_passed_over() {
    for path in [
        "",
        "/",
        "/vnf-agent/contiv-ksr",
        "/vnf-agent/contiv-ksr/",
        "/vnf-agent/contiv-ksr/k8s",
        "/vnf-agent/contiv-ksr/k8s/",
        "/vnf-agent/contiv-ksr/k8s/service",
        "/vnf-agent/contiv-ksr/k8s/services/web/namespace/default",
        "/vnf-agent/contiv-ksr/k8s/policy/deny/namespace/default",
        "/vnf-agent/contiv-ksr/k8s/nodeconfig/n1",
        "/vnf-agent/contiv-ksr/k8s/customnetwork/red",
        "/vnf-agent/contiv-ksr/k8s/servicefunctionchain/chain",
        "/vnf-agent/contiv-ksr/idalloc/pool",
        "/vnf-agent/contiv-ksr/status/gauges",
        "/vnf-agent/contiv-ksr/sfc-controller/v2/status/network-pod-to-node-map/a-namespace-b",
        "/vnf-agent/n1/config/vpp/v2/interfaces/tap1",
        "/contiv-ksr/election/7587",
        "k8s/service/web/namespace/default",
    ] {
        assert_eq!(Key::parse(path), Ok(None), "{path}");
    }
}

#[test]
fn malformed_key_of_one_of_our_types_is_error_that_names_it() {
    for (below_root, problem) in [
        ("k8s/service/", "has the form"),
        (
            "k8s/service/web",
            "has the form /vnf-agent/contiv-ksr/k8s/service/<name>/namespace/<namespace>",
        ),
        ("k8s/service/web/default", "has the form"),
        ("k8s/service/web/ns/default", "has the form"),
        ("k8s/service/web/namespace/default/x", "has the form"),
        ("k8s/service/web/namespace/", "namespace is empty"),
        ("k8s/service//namespace/default", "name is empty"),
        ("k8s/namespace/default/pod/web-0", "has the form"),
        ("k8s/node/", "name is empty"),
        ("k8s/node/a\nb", "control character"),
        ("custom-ipam/web-0", "has the form"),
        ("custom-ipam/web-0/", "namespace is empty"),
        ("allocatedIDs/", "not a node id"),
        ("allocatedIDs/0", "not a node id"),
        ("allocatedIDs/n1", "not a node id"),
        ("allocatedIDs/-1", "not a node id"),
        ("allocatedIDs/+1", "not a node id"),
        ("allocatedIDs/007", "not a node id"),
        ("allocatedIDs/4294967296", "not a node id"),
        ("allocatedIDs/1/2", "has the form"),
    ] {
        let path = format!("{ROOT}{below_root}");
        let error = Key::parse(&path).expect_err(&path);
        assert_eq!(error.key, path);
        assert!(error.problem.contains(problem), "{error}");
    }
}

#[test]
fn name_with_slash_cannot_break_out_of_its_key() {
    for (namespace, name) in [
        ("default", "web/namespace/kube-system"),
        ("a/b", "web"),
        ("", "web"),
        ("a", ""),
    ] {
        Key::new(Kind::Service, namespace, name).unwrap_err();
        Key::new(Kind::IpAllocation, namespace, name).unwrap_err();
    }
    Key::new(Kind::Node, "", "n1/namespace/x").unwrap_err();
    Key::new(Kind::Node, "default", "n1").unwrap_err();
}

proptest! {
    #[test]
    fn key_that_can_be_made_reads_back_as_itself(
        kind in prop::sample::select(&Kind::ALL[..]),
        namespace in "\\PC{0,8}",
        name in prop_oneof!["\\PC{0,8}", any::<u32>().prop_map(|id| id.to_string())],
    ) {
        let namespace = if kind.is_namespaced() { namespace } else { String::new() };
        if let Ok(key) = Key::new(kind, namespace, name) {
            prop_assert_eq!(Key::parse(&key.to_path()), Ok(Some(key)));
        }
    }

    #[test]
    fn key_that_can_be_read_writes_back_as_itself(
        folder in prop::sample::select(&["k8s/pod", "k8s/node", "allocatedIDs", "custom-ipam", "k8s/policy"][..]),
        rest in "(/(namespace|[a-z0-9]{0,2}|\\PC)){0,4}",
    ) {
        let path = format!("{ROOT}{folder}{rest}");
        if let Ok(Some(key)) = Key::parse(&path) {
            prop_assert_eq!(key.to_path(), path);
        }
    }

    #[test]
    fn key_of_any_text_never_panics(text in ".*") {
        // The result does not matter: reading must not panic.
        drop((Key::parse(&text), Key::parse(&format!("{ROOT}{text}"))));
    }
}
