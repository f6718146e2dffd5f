//! Field numbers never change. Binary values are listed by number by an independent reader, `protoc --decode_raw`, which knows
//! no names; the listings follow Contiv's `.proto` files and, past Contiv's last number, `docs/builders/stored-data.md`.

use std::{
    env,
    io::Write,
    process::{Command, Stdio},
};

use contiv_proto::{
    Wire,
    message::{
        endpoints::Endpoints, endpointslice::EndpointSlice, externalworkload::ExternalWorkload,
        ipalloc::CustomIpAllocation, namespace::Namespace, node::Node, pod::Pod, service::Service,
        vppnode::VppNode,
    },
    value::decode,
};

/// The numbers and values in a message as protoc prints them, without indentation and line ends.
fn numbers<M: Wire>(json: &str) -> String {
    let value = decode::<M>(json.as_bytes()).unwrap().encode_to_vec();
    let mut protoc = Command::new(env::var("PROTOC").unwrap_or_else(|_| "protoc".to_owned()))
        .arg("--decode_raw")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("protoc, without which this crate does not build");
    protoc.stdin.take().unwrap().write_all(&value).unwrap();
    let output = protoc.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout)
        .unwrap()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

// Short values that protoc cannot take for a nested message: "v…" is not one.
#[test]
fn field_numbers_of_a_pod() {
    assert_eq!(
        numbers::<Pod>(
            r#"{"name":"v1","namespace":"v2","label":[{"key":"v1","value":"v2"}],"ip_address":"v4",
            "host_ip_address":"v5","container":[{"name":"v1","port":[{"name":"v1","host_port":2,
            "container_port":3,"protocol":"UDP","host_ip_address":"v5"},{"protocol":"SCTP"}]}],
            "annotations":{"v1":"v2"},"labels":{"v1":"v2"},"node_name":"v9","ip_addresses":["v10"],
            "host_network":true,"phase":"v12"}"#
        ),
        concat!(
            r#"1: "v1" 2: "v2" 3 { 1: "v1" 2: "v2" } 4: "v4" 5: "v5" "#,
            r#"6 { 1: "v1" 2 { 1: "v1" 2: 2 3: 3 4: 1 5: "v5" } 2 { 4: 2 } } 7 { 1: "v1" 2: "v2" } "#,
            r#"8 { 1: "v1" 2: "v2" } 9: "v9" 10: "v10" 11: 1 12: "v12""#
        )
    );
}

#[test]
fn field_numbers_of_a_service() {
    assert_eq!(
        numbers::<Service>(
            r#"{"name":"v1","namespace":"v2","port":[{"name":"v1","protocol":"v2","port":3,
            "target_port":{"type":"STRING","int_val":2,"string_val":"v3"},"node_port":5,"app_protocol":"v6"}],
            "selector":{"v1":"v2"},"cluster_ip":"v5","service_type":"v6","external_ips":["v7"],
            "lb_ingress_ips":["v8"],"session_affinity":"v9","loadbalancer_ip":"v10",
            "loadbalancer_source_ranges":["v11"],"external_traffic_policy":"v12","health_check_node_port":13,
            "session_affinity_timeout":14,"annotations":{"v1":"v2"},"internal_traffic_policy":"v16",
            "cluster_ips":["v17"],"load_balancer_ingress":[{"ip":"v1","hostname":"v2","ip_mode":"v3"}],
            "publish_not_ready_addresses":true,"labels":{"v1":"v2"},"creation_timestamp":"21",
            "external_name":"v22","load_balancer_class":"v23","traffic_distribution":"v24","ip_families":["v25"]}"#
        ),
        concat!(
            r#"1: "v1" 2: "v2" 3 { 1: "v1" 2: "v2" 3: 3 4 { 1: 1 2: 2 3: "v3" } 5: 5 6: "v6" } "#,
            r#"4 { 1: "v1" 2: "v2" } 5: "v5" 6: "v6" 7: "v7" 8: "v8" 9: "v9" 10: "v10" 11: "v11" 12: "v12" "#,
            r#"13: 13 14: 14 15 { 1: "v1" 2: "v2" } 16: "v16" 17: "v17" 18 { 1: "v1" 2: "v2" 3: "v3" } "#,
            r#"19: 1 20 { 1: "v1" 2: "v2" } 21: 21 22: "v22" 23: "v23" 24: "v24" 25: "v25""#
        )
    );
}

#[test]
fn field_numbers_of_endpoints() {
    assert_eq!(
        numbers::<Endpoints>(
            r#"{"name":"v1","namespace":"v2","endpoint_subsets":[{"addresses":[{"ip":"v1","host_name":"v2",
            "node_name":"v3","target_ref":{"kind":"v1","namespace":"v2","name":"v3","uid":"v4",
            "api_version":"v5","resource_version":"v6"}}],"not_ready_addresses":[{"ip":"v1"}],
            "ports":[{"name":"v1","port":2,"protocol":"v3"}]}],"labels":{"v1":"v2"}}"#
        ),
        concat!(
            r#"1: "v1" 2: "v2" 3 { 1 { 1: "v1" 2: "v2" 3: "v3" "#,
            r#"4 { 1: "v1" 2: "v2" 3: "v3" 4: "v4" 5: "v5" 6: "v6" } } 2 { 1: "v1" } "#,
            r#"3 { 1: "v1" 2: 2 3: "v3" } } 4 { 1: "v1" 2: "v2" }"#
        )
    );
}

#[test]
fn field_numbers_of_an_endpoint_slice() {
    assert_eq!(
        numbers::<EndpointSlice>(
            r#"{"name":"v1","namespace":"v2","service_name":"v3","address_type":"v4","endpoints":[{
            "addresses":["v1"],"conditions":{"ready":true,"serving":false,"terminating":true},"host_name":"v3",
            "node_name":"v4","zone":"v5","target_ref":{"kind":"v1"},
            "hints":{"for_zones":["v1"],"for_nodes":["v2"]}}],
            "ports":[{"name":"v1","port":2,"protocol":"v3","app_protocol":"v4"}],
            "labels":{"v1":"v2"},"annotations":{"v1":"v2"}}"#
        ),
        concat!(
            r#"1: "v1" 2: "v2" 3: "v3" 4: "v4" 5 { 1: "v1" 2 { 1: 1 2: 0 3: 1 } 3: "v3" 4: "v4" 5: "v5" "#,
            r#"6 { 1: "v1" } 7 { 1: "v1" 2: "v2" } } 6 { 1: "v1" 2: 2 3: "v3" 4: "v4" } "#,
            r#"7 { 1: "v1" 2: "v2" } 8 { 1: "v1" 2: "v2" }"#
        )
    );
}

#[test]
fn field_numbers_of_an_external_workload() {
    assert_eq!(
        numbers::<ExternalWorkload>(
            r#"{"name":"v1","namespace":"v2","mesh_tls":{"identity":"v1","server_name":"v2"},
            "ports":[{"name":"v1","port":2,"protocol":"v3"}],"workload_ips":["v5"],
            "conditions":[{"type":"v1","status":"v2","last_probe_time":"3","last_transition_time":"4",
            "reason":"v5","message":"v6"}],"labels":{"v1":"v2"},"annotations":{"v1":"v2"},
            "creation_timestamp":"9"}"#
        ),
        concat!(
            r#"1: "v1" 2: "v2" 3 { 1: "v1" 2: "v2" } 4 { 1: "v1" 2: 2 3: "v3" } 5: "v5" "#,
            r#"6 { 1: "v1" 2: "v2" 3: 3 4: 4 5: "v5" 6: "v6" } 7 { 1: "v1" 2: "v2" } 8 { 1: "v1" 2: "v2" } 9: 9"#
        )
    );
}

#[test]
fn field_numbers_of_a_node() {
    assert_eq!(
        numbers::<Node>(
            r#"{"name":"v1","pod_CIDR":"v2","provider_ID":"v3","addresses":[{"type":"NodeHostName"},
            {"type":"NodeExternalIP"},{"type":"NodeInternalIP"},{"type":"NodeExternalDNS"},
            {"type":"NodeInternalDNS","address":"v2"}],"node_info":{"machine_ID":"v1","system_UUID":"v2",
            "boot_ID":"v3","kernel_version":"v4","os_image":"v5","container_runtime_version":"v6",
            "kubelet_version":"v7","KubeProxyVersion":"v8","OperatingSystem":"v9","Architecture":"v10"},
            "pod_cidrs":["v6"],"labels":{"v1":"v2"}}"#
        ),
        concat!(
            r#"1: "v1" 2: "v2" 3: "v3" 4 { 1: 1 } 4 { 1: 2 } 4 { 1: 3 } 4 { 1: 4 } 4 { 1: 5 2: "v2" } "#,
            r#"5 { 1: "v1" 2: "v2" 3: "v3" 4: "v4" 5: "v5" 6: "v6" 7: "v7" 8: "v8" 9: "v9" 10: "v10" } "#,
            r#"6: "v6" 7 { 1: "v1" 2: "v2" }"#
        )
    );
}

#[test]
fn field_numbers_of_a_namespace() {
    assert_eq!(
        numbers::<Namespace>(r#"{"name":"v1","label":[{"key":"v1","value":"v2"}]}"#),
        r#"1: "v1" 3 { 1: "v1" 2: "v2" }"#
    );
}

#[test]
fn field_numbers_of_a_vpp_node() {
    assert_eq!(
        numbers::<VppNode>(r#"{"id":1,"name":"v2","ip_address":"v3","ip_addresses":["v5"]}"#),
        r#"1: 1 2: "v2" 3: "v3" 5: "v5""#
    );
}

#[test]
fn field_numbers_of_an_ip_allocation() {
    assert_eq!(
        numbers::<CustomIpAllocation>(
            r#"{"pod_name":"v1","pod_namespace":"v2","custom_interfaces":[{"name":"v1","network":"v2",
            "ip_address":"v3","service_endpoint":true}]}"#
        ),
        r#"1: "v1" 2: "v2" 3 { 1: "v1" 2: "v2" 3: "v3" 4: 1 }"#
    );
}
