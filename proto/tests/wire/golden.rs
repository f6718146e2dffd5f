//! JSON values as Contiv writes them to etcd, in the form of contiv/vpp's `plugins/crd/testdata/*_raw_data.go`. Each is decoded
//! and encoded again without a difference.

use std::fmt::Debug;

use contiv_proto::{
    Wire,
    message::{
        endpoints::Endpoints,
        endpointslice::{EndpointSlice, endpoint_slice::Conditions},
        ipalloc::CustomIpAllocation,
        namespace::Namespace,
        node::{Node, node_address},
        pod::{Pod, pod::container::port::Protocol},
        service::Service,
        vppnode::VppNode,
    },
    value::{decode, encode},
};

/// Decodes `json`, and checks that encoding the message gives exactly `json` again.
fn round_trip<M: Wire + PartialEq + Debug>(json: &str) -> M {
    let message: M = decode(json.as_bytes()).unwrap();
    assert_eq!(String::from_utf8(encode(&message).unwrap()).unwrap(), json);
    message
}

const SERVICE: &str = concat!(
    r#"{"name":"nginx","namespace":"default","port":[{"name":"http","protocol":"TCP","port":80,"#,
    r#""target_port":{"int_val":8080},"node_port":30080}],"selector":{"app":"nginx"},"#,
    r#""cluster_ip":"10.104.58.114","service_type":"NodePort","session_affinity":"None","#,
    r#""external_traffic_policy":"Cluster"}"#
);

#[test]
fn contiv_service_round_trips() {
    let service: Service = round_trip(SERVICE);
    assert_eq!(
        (service.name.as_str(), service.namespace.as_str()),
        ("nginx", "default")
    );
    assert_eq!(service.port[0].port, 80);
    assert_eq!(service.port[0].node_port, 30080);
    assert_eq!(service.port[0].target_port.as_ref().unwrap().int_val, 8080);
    assert_eq!(service.selector["app"], "nginx");
    assert_eq!(service.cluster_ip, "10.104.58.114");
    assert_eq!(service.external_traffic_policy, "Cluster");
}

#[test]
fn empty_map_written_by_go_is_decoded_and_not_encoded() {
    let go = SERVICE.replace(r#""Cluster"}"#, r#""Cluster","annotations":{}}"#);
    let service: Service = decode(go.as_bytes()).unwrap();
    assert_eq!(service, decode(SERVICE.as_bytes()).unwrap());
    assert_eq!(encode(&service).unwrap(), SERVICE.as_bytes());
}

#[test]
fn service_fields_unknown_to_contiv_are_encoded_last() {
    let service: Service = round_trip(concat!(
        r#"{"name":"web","namespace":"default","port":[{"port":443,"target_port":{"type":"STRING","#,
        r#""string_val":"https"},"app_protocol":"kubernetes.io/h2c"}],"session_affinity_timeout":10800,"#,
        r#""internal_traffic_policy":"Local","cluster_ips":["10.96.0.7","fd00::7"],"#,
        r#""load_balancer_ingress":[{"ip":"192.0.2.7","ip_mode":"Proxy"},{"hostname":"lb.example"}],"#,
        r#""publish_not_ready_addresses":true,"labels":{"a":"1","b":"2"},"#,
        r#""creation_timestamp":"1700000000","external_name":"db.example","load_balancer_class":"x/y","#,
        r#""traffic_distribution":"PreferClose"}"#
    ));
    assert_eq!(service.creation_timestamp, 1_700_000_000);
    assert_eq!(service.load_balancer_ingress[0].ip_mode, "Proxy");
}

#[test]
fn contiv_endpoints_round_trip() {
    let endpoints: Endpoints = round_trip(concat!(
        r#"{"name":"nginx","namespace":"default","endpoint_subsets":[{"addresses":[{"ip":"10.1.2.8","#,
        r#""node_name":"k8s-worker1","target_ref":{"kind":"Pod","namespace":"default","name":"nginx-x","#,
        r#""uid":"b8c2","resource_version":"6011"}}],"not_ready_addresses":[{"ip":"10.1.2.9"}],"#,
        r#""ports":[{"name":"http","port":8080,"protocol":"TCP"}]}]}"#
    ));
    let subset = &endpoints.endpoint_subsets[0];
    assert_eq!(
        subset.addresses[0].target_ref.as_ref().unwrap().name,
        "nginx-x"
    );
    assert_eq!(subset.not_ready_addresses[0].ip, "10.1.2.9");
    assert_eq!(subset.ports[0].port, 8080);
}

#[test]
fn endpoint_slice_distinguishes_false_from_absent() {
    let slice: EndpointSlice = round_trip(concat!(
        r#"{"name":"web-x7k2p","namespace":"default","service_name":"web","address_type":"IPv4","#,
        r#""endpoints":[{"addresses":["10.1.2.8"],"conditions":{"ready":false,"terminating":true},"#,
        r#""node_name":"n1","zone":"a","hints":{"for_zones":["a"],"for_nodes":["n1"]}},"#,
        r#"{"addresses":["10.1.2.9"]}],"ports":[{"name":"","port":8080,"protocol":"TCP"},{}]}"#
    ));
    let conditions = slice.endpoints[0].conditions.unwrap();
    assert_eq!(
        conditions,
        Conditions {
            ready: Some(false),
            serving: None,
            terminating: Some(true)
        }
    );
    assert_eq!(slice.endpoints[1].conditions, None);
    assert_eq!(slice.ports[0].name.as_deref(), Some(""));
    assert_eq!(
        (slice.ports[1].name.as_deref(), slice.ports[1].port),
        (None, None)
    );
}

#[test]
fn contiv_node_keeps_its_irregular_field_names() {
    let node: Node = round_trip(concat!(
        r#"{"name":"k8s-worker1","pod_CIDR":"10.0.1.0/24","provider_ID":"x","#,
        r#""addresses":[{"type":"NodeInternalIP","address":"10.20.0.10"},"#,
        r#"{"type":"NodeHostName","address":"k8s-worker1"}],"#,
        r#""node_info":{"machine_ID":"m","system_UUID":"s","boot_ID":"b","kernel_version":"4.4.0-21-generic","#,
        r#""os_image":"Ubuntu 16.04 LTS","container_runtime_version":"docker://18.3.0","#,
        r#""kubelet_version":"v1.10.1","KubeProxyVersion":"v1.10.1","OperatingSystem":"linux","#,
        r#""Architecture":"amd64"},"pod_cidrs":["10.0.1.0/24","fd01::/64"],"#,
        r#""labels":{"topology.kubernetes.io/zone":"a"}}"#
    ));
    assert_eq!(
        node.addresses[0].r#type(),
        node_address::Type::NodeInternalIp
    );
    assert_eq!(node.node_info.unwrap().kube_proxy_version, "v1.10.1");
}

#[test]
fn contiv_pod_round_trips() {
    let pod: Pod = round_trip(concat!(
        r#"{"name":"kube-dns-86f4d74b45-fztvh","namespace":"kube-system","#,
        r#""label":[{"key":"k8s-app","value":"kube-dns"}],"ip_address":"10.1.1.3","#,
        r#""host_ip_address":"10.20.0.2","container":[{"name":"kubedns","#,
        r#""port":[{"name":"dns-local","host_port":53,"container_port":10053,"protocol":"UDP"},"#,
        r#"{"name":"metrics","container_port":10055}]}],"labels":{"k8s-app":"kube-dns"},"#,
        r#""node_name":"k8s-master","ip_addresses":["10.1.1.3","fd01::3"],"phase":"Running"}"#
    ));
    assert_eq!(pod.container[0].port[0].protocol(), Protocol::Udp);
    assert_eq!(pod.container[0].port[1].protocol(), Protocol::Tcp);
}

#[test]
fn other_contiv_types_round_trip() {
    let node: VppNode =
        round_trip(r#"{"id":2,"name":"k8s-worker1","ip_addresses":["192.168.16.2/24"]}"#);
    assert_eq!(
        (node.id, node.ip_addresses[0].as_str()),
        (2, "192.168.16.2/24")
    );

    let namespace: Namespace =
        round_trip(r#"{"name":"default","label":[{"key":"a","value":"b"}]}"#);
    assert_eq!(namespace.label[0].value, "b");

    let allocation: CustomIpAllocation = round_trip(concat!(
        r#"{"pod_name":"web-0","pod_namespace":"default","custom_interfaces":[{"name":"tap1","#,
        r#""network":"default","ip_address":"10.1.1.9","service_endpoint":true}]}"#
    ));
    assert!(allocation.custom_interfaces[0].service_endpoint);
}
