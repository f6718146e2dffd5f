//! Services of Kubernetes, from the stored value to the renderers' input.

use contiv_model::{ContivService, Event, Frontend, Processor, Protocol, TrafficPolicy, wire};
use contiv_proto::{Key, Kind};

use crate::builders::*;

/// The event of a stored value.
fn stored(kind: Kind, name: &str, value: &str) -> Event {
    let namespace = if kind.is_namespaced() { "default" } else { "" };
    let key = Key::new(kind, namespace, name).unwrap();
    Event::Put(wire::decode(&key, value.as_bytes(), 1).unwrap().unwrap())
}

fn service(value: &str) -> Event {
    stored(Kind::Service, "web", value)
}

fn web(processor: &Processor) -> Option<&ContivService> {
    processor
        .service(&service_id("default/web"))
        .map(AsRef::as_ref)
}

const ENDPOINTS: &str = r#"{"endpoint_subsets":[{"addresses":[{"ip":"10.2.0.1"}],"ports":[{"name":"http","port":8080}]}]}"#;

#[test]
fn headless_service_has_no_frontend_even_with_other_addresses() {
    let processor = mk_processor_with([
        service(
            r#"{"cluster_ip":"None","external_ips":["192.0.2.1"],
                "port":[{"name":"http","port":80,"node_port":30080}]}"#,
        ),
        stored(Kind::Endpoints, "web", ENDPOINTS),
    ]);
    assert_eq!(web(&processor), None);
}

#[test]
fn alias_has_no_frontend_even_with_addresses_from_another_life() {
    let processor = mk_processor_with([
        service(
            r#"{"service_type":"ExternalName","external_name":"example.com","cluster_ip":"10.96.0.1",
                "external_ips":["192.0.2.1"],"port":[{"name":"http","port":80}]}"#,
        ),
        stored(Kind::Endpoints, "web", ENDPOINTS),
    ]);
    assert_eq!(web(&processor), None);
}

#[test]
fn service_without_selector_has_backends_that_someone_wrote() {
    let processor = mk_processor_with([
        service(r#"{"cluster_ip":"10.96.0.1","port":[{"name":"http","port":80}]}"#),
        stored(Kind::Endpoints, "web", ENDPOINTS),
    ]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 10.2.0.1:8080"]
    );
}

#[test]
fn ingress_of_mode_proxy_gives_no_frontend_at_all() {
    let load_balancer = |mode: &str| {
        service(&format!(
            r#"{{"service_type":"LoadBalancer","cluster_ip":"10.96.0.1","port":[{{"name":"http","port":80}}],
                "load_balancer_ingress":[{{"ip":"192.0.2.1","ip_mode":"{mode}"}}]}}"#
        ))
    };
    let vip = Frontend::Address {
        address: ip("192.0.2.1"),
        protocol: Protocol::Tcp,
        port: 80,
    };
    let mut processor = mk_processor_with([load_balancer("VIP")]);
    assert!(web(&processor).unwrap().frontends().contains(&vip));

    processor.apply([load_balancer("Proxy")]);
    let service = web(&processor).unwrap();
    assert_eq!(
        (&service.external_ips, &service.load_balancer_ips),
        (&ips(&[]), &ips(&[]))
    );
    let cluster = Frontend::Address {
        address: ip("10.96.0.1"),
        protocol: Protocol::Tcp,
        port: 80,
    };
    assert_eq!(service.frontends(), [cluster].into());
}

#[test]
fn ports_match_by_name_and_protocol_with_targets_per_slice() {
    let slice = |name: &str, address: &str, web: u16, tcp: u16, udp: u16| {
        let value = format!(
            r#"{{"service_name":"web","address_type":"IPv4","endpoints":[{{"addresses":["{address}"]}}],"ports":[
                {{"name":"http","port":{web}}},{{"name":"dns","port":{tcp},"protocol":"TCP"}},
                {{"name":"dns","port":{udp},"protocol":"UDP"}},{{"port":7000}}]}}"#
        );
        stored(Kind::EndpointSlice, name, &value)
    };
    let processor = mk_processor_with([
        service(
            r#"{"cluster_ip":"10.96.0.1","port":[{"name":"http","port":80,"target_port":{"int_val":1}},
                {"name":"dns","port":53,"protocol":"TCP"},{"name":"dns","port":53,"protocol":"UDP"},
                {"name":"none","port":7000}]}"#,
        ),
        slice("web-1", "10.2.0.1", 8080, 5301, 5302),
        slice("web-2", "10.2.0.2", 9090, 5311, 5312),
    ]);
    assert_eq!(
        backends(&processor, "default/web"),
        [
            "53/tcp -> 10.2.0.1:5301",
            "53/tcp -> 10.2.0.2:5311",
            "53/udp -> 10.2.0.1:5302",
            "53/udp -> 10.2.0.2:5312",
            "80/tcp -> 10.2.0.1:8080",
            "80/tcp -> 10.2.0.2:9090",
        ]
    );
}

#[test]
fn addresses_published_unready_are_used_but_no_last_resort() {
    // The endpoints controller's data about a pod that is not ready, with publishNotReadyAddresses and without.
    let slice = |ready: bool| {
        let value = format!(
            r#"{{"service_name":"web","address_type":"IPv4","ports":[{{"name":"http","port":8080}}],"endpoints":[
                {{"addresses":["10.2.0.1"],"conditions":{{"ready":{ready},"serving":false}}}}]}}"#
        );
        stored(Kind::EndpointSlice, "web-1", &value)
    };
    let mut processor = mk_processor_with([
        service(
            r#"{"cluster_ip":"10.96.0.1","publish_not_ready_addresses":true,"port":[{"name":"http","port":80}]}"#,
        ),
        slice(true),
    ]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 10.2.0.1:8080"]
    );
    processor.apply([slice(false)]);
    assert!(backends(&processor, "default/web").is_empty());
}

#[test]
fn hints_zone_and_weight_come_from_where_kubernetes_has_them() {
    let processor = mk_processor_with([
        stored(
            Kind::Node,
            MASTER,
            r#"{"labels":{"topology.kubernetes.io/zone":"z1"}}"#,
        ),
        stored(
            Kind::Pod,
            "p1",
            r#"{"ip_address":"10.2.0.1","annotations":{"contiv.io/weight":"7"}}"#,
        ),
        service(r#"{"cluster_ip":"10.96.0.1","port":[{"name":"http","port":80}]}"#),
        stored(
            Kind::EndpointSlice,
            "web-1",
            r#"{"service_name":"web","address_type":"IPv4","ports":[{"name":"http","port":8080}],"endpoints":[
                {"addresses":["10.2.0.1"],"hints":{"for_zones":["z1"]},"target_ref":{"kind":"Pod","name":"p1"}},
                {"addresses":["10.2.0.2"],"hints":{"for_zones":["z2"],"for_nodes":["worker"]}}]}"#,
        ),
    ]);
    assert_eq!(
        backends(&processor, "default/web"),
        [
            "80/tcp -> 10.2.0.1:8080 x7",
            "80/tcp -> 10.2.0.2:8080 elsewhere"
        ]
    );
}

#[test]
fn annotations_do_not_change_policies() {
    let processor = mk_processor_with([service(
        r#"{"cluster_ip":"10.96.0.1","port":[{"name":"http","port":80}],"session_affinity":"ClientIP",
            "annotations":{"contiv.io/prefer-local":"true","contiv.io/balance":"client-address",
            "contiv.io/session-affinity-scope":"service","contiv.io/reset-connections":"true"}}"#,
    )]);
    let service = web(&processor).unwrap();
    assert_eq!(
        (service.internal_policy, service.external_policy),
        (TrafficPolicy::Cluster, TrafficPolicy::Cluster)
    );
    assert!(service.affinity_shared && service.reset_connections);
}
