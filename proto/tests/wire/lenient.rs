//! Input that is accepted although Contiv does not write it.

use contiv_proto::{
    message::{
        endpoints::{Endpoints, endpoint_subset::EndpointAddress},
        endpointslice::EndpointSlice,
        node::Node,
        pod::{Pod, pod::container::port::Protocol},
        service::Service,
    },
    value::decode,
};

#[test]
fn camel_case_reads_as_proto_names_do() {
    let camel: Node = decode(
        br#"{"name":"n1","podCIDR":"10.1.0.0/24","providerID":"x","nodeInfo":{"machineID":"m","systemUUID":"s"}}"#,
    )
    .unwrap();
    let proto: Node = decode(
        br#"{"name":"n1","pod_CIDR":"10.1.0.0/24","provider_ID":"x","node_info":{"machine_ID":"m","system_UUID":"s"}}"#,
    )
    .unwrap();
    assert_eq!(camel, proto);
    assert_eq!(camel.node_info.unwrap().system_uuid, "s");
}

#[test]
fn camel_case_wins_over_proto_names_in_either_order() {
    for json in [
        r#"{"cluster_ip":"10.0.0.1","clusterIp":"10.0.0.2","port":[{"nodePort":2,"node_port":1}]}"#,
        r#"{"clusterIp":"10.0.0.2","cluster_ip":"10.0.0.1","port":[{"node_port":1,"nodePort":2}]}"#,
    ] {
        let service: Service = decode(json.as_bytes()).unwrap();
        assert_eq!(
            (service.cluster_ip.as_str(), service.port[0].node_port),
            ("10.0.0.2", 2)
        );
    }
    let service: Service = decode(br#"{"cluster_ip":"10.0.0.1","clusterIp":null}"#).unwrap();
    assert_eq!(service.cluster_ip, "");
}

#[test]
fn keys_of_map_are_no_field_names() {
    let service: Service =
        decode(br#"{"clusterIp":"","cluster_ip":"","labels":{"cluster_ip":"a","clusterIp":"b"}}"#)
            .unwrap();
    assert_eq!(
        (
            service.labels["cluster_ip"].as_str(),
            service.labels["clusterIp"].as_str()
        ),
        ("a", "b")
    );
}

#[test]
fn duplicate_field_counts_the_last() {
    let service: Service = decode(
        br#"{"name":"a","name":"b","port":[{"port":1,"port":2}],"labels":{"x":"1","x":"2"}}"#,
    )
    .unwrap();
    assert_eq!((service.name.as_str(), service.port[0].port), ("b", 2));
    assert_eq!(service.labels["x"], "2");
}

#[test]
fn null_is_the_default_of_any_field() {
    let service: Service = decode(
        br#"{"name":"web","namespace":null,"port":null,"selector":null,"creation_timestamp":null,
            "session_affinity_timeout":null,"publish_not_ready_addresses":null,"external_ips":["192.0.2.1",null],
            "labels":{"a":null},"load_balancer_ingress":[null,{"ip":null}]}"#,
    )
    .unwrap();
    assert_eq!(service.external_ips, ["192.0.2.1", ""]);
    assert_eq!(service.labels["a"], "");
    assert_eq!(service.load_balancer_ingress.len(), 2);
    assert_eq!(
        Service {
            external_ips: Vec::new(),
            labels: [].into(),
            load_balancer_ingress: Vec::new(),
            ..service
        },
        Service {
            name: "web".to_owned(),
            ..Service::default()
        }
    );

    let service: Service = decode(
        br#"{"port":[{"port":null,"target_port":{"type":null,"int_val":8080}},{"target_port":null}]}"#,
    )
    .unwrap();
    assert_eq!(service.port[0].target_port.as_ref().unwrap().int_val, 8080);
    assert_eq!(service.port[1].target_port, None);

    let slice: EndpointSlice = decode(
        br#"{"name":null,"endpoints":[{"conditions":{"ready":null}}],"ports":[{"name":null,"port":null}]}"#,
    )
    .unwrap();
    assert_eq!(slice.endpoints[0].conditions.unwrap().ready, None);
    assert_eq!(
        (slice.ports[0].name.as_deref(), slice.ports[0].port),
        (None, None)
    );

    let endpoints: Endpoints = decode(
        br#"{"endpoint_subsets":[{"addresses":[null],"ports":null,"notReadyAddresses":[]}]}"#,
    )
    .unwrap();
    assert_eq!(
        endpoints.endpoint_subsets[0].addresses,
        [EndpointAddress::default()]
    );
}

#[test]
fn unknown_fields_are_passed_over() {
    let service: Service = decode(
        br#"{"name":"web","ports":7,"x":{"y":[1.5e300,null,{"z":true}]},"port":[{"port":80,"weight":"heavy"}]}"#,
    )
    .unwrap();
    assert_eq!((service.name.as_str(), service.port[0].port), ("web", 80));
}

#[test]
fn enum_is_read_by_name_or_by_number() {
    for spelling in [r#""UDP""#, "1"] {
        let json = format!(r#"{{"container":[{{"port":[{{"protocol":{spelling}}}]}}]}}"#);
        let pod: Pod = decode(json.as_bytes()).unwrap();
        assert_eq!(
            pod.container[0].port[0].protocol(),
            Protocol::Udp,
            "{spelling}"
        );
    }
}

#[test]
fn integers_are_read_with_and_without_quotes() {
    for json in [
        r#"{"creation_timestamp":"-9007199254740993","session_affinity_timeout":"7","port":[{"port":"80"}]}"#,
        r#"{"creation_timestamp":-9007199254740993,"session_affinity_timeout":7,"port":[{"port":80}]}"#,
    ] {
        let service: Service = decode(json.as_bytes()).unwrap();
        assert_eq!(service.creation_timestamp, -9_007_199_254_740_993);
        assert_eq!(
            (service.session_affinity_timeout, service.port[0].port),
            (7, 80)
        );
    }
}

#[test]
fn leniencies_do_not_exclude_each_other() {
    let service: Service = decode(
        br#"{"serviceType":null,"creationTimestamp":"5","healthCheckNodePort":"9","x":[{}],"port":[{"targetPort":{"type":1}}]}"#,
    )
    .unwrap();
    assert_eq!(
        (service.creation_timestamp, service.health_check_node_port),
        (5, 9)
    );
    assert_eq!(service.port[0].target_port.as_ref().unwrap().r#type, 1);
}

#[test]
fn white_space_around_json_is_no_protobuf() {
    let json = "\n \r\n\t{\n  \"name\": \"web\"\n}\n";
    assert_eq!(decode::<Service>(json.as_bytes()).unwrap().name, "web");
    assert_eq!(decode::<Service>(b" {\t} ").unwrap(), Service::default());
}
