//! Values that API servers accepted once, or may accept later, and of which kube-proxy serves what it understands.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Etcd, Frontend, Manifests, NAMESPACE, PORT, ROOT, Service, State, TARGET_PORT},
    lab::{Family, Lab, LabError, Namespace, Outcome, Protocol, Responder, Result, isolated},
};
use serde_json::{Value, json};

/// The time without an answer after which a packet counts as dropped. Answers take a few milliseconds.
const NO_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

#[test]
fn manifests_with_leading_zeros_in_addresses_are_served() -> Result<()> {
    isolated(
        "partly_used::manifests_with_leading_zeros_in_addresses_are_served",
        |lab| {
            let state = Manifests::new(lab)?;
            let web = web(lab);
            let text = |frontend| addresses(&web, lab, frontend, padded);
            let cluster_ips = text(Frontend::ClusterIp);
            write_all(
                &state,
                &[
                    manifest(
                        "Service",
                        web.name,
                        json!({
                            "spec": {
                                "type": "LoadBalancer",
                                "clusterIP": cluster_ips[0],
                                "clusterIPs": cluster_ips,
                                "externalIPs": text(Frontend::ExternalIp),
                                "loadBalancerSourceRanges": client_only(lab),
                                "ports": [{"name": "web", "port": PORT, "nodePort": web.node_port()}],
                            },
                            "status": {"loadBalancer": {"ingress": text(Frontend::LoadBalancer).map(|ip| json!({"ip": ip}))}},
                        }),
                    ),
                    slice_manifest(
                        &web,
                        Family::V4,
                        &json!([{"name": "web", "port": TARGET_PORT}]),
                        padded,
                    ),
                    slice_manifest(
                        &web,
                        Family::V6,
                        &json!([{"name": "web", "port": TARGET_PORT}]),
                        padded,
                    ),
                ],
            )?;
            leading_zeros_are_dropped(lab, &state)
        },
    )
}

#[test]
fn etcd_values_with_leading_zeros_in_addresses_are_served() -> Result<()> {
    isolated(
        "partly_used::etcd_values_with_leading_zeros_in_addresses_are_served",
        |lab| {
            let state = Etcd::start(lab)?;
            let web = web(lab);
            let text = |frontend| addresses(&web, lab, frontend, padded);
            let cluster_ips = text(Frontend::ClusterIp);
            let service = json!({
                "name": web.name, "namespace": NAMESPACE, "service_type": "LoadBalancer",
                "cluster_ip": cluster_ips[0],
                "cluster_ips": cluster_ips,
                "external_ips": text(Frontend::ExternalIp),
                "lb_ingress_ips": text(Frontend::LoadBalancer),
                "loadbalancer_source_ranges": client_only(lab),
                "port": [{"name": "web", "protocol": "TCP", "port": PORT, "node_port": web.node_port()}],
            });
            state.put_value(&Etcd::key(&web), &service.to_string())?;
            let ports = json!([{"name": "web", "protocol": "TCP", "port": TARGET_PORT}]);
            Family::BOTH
                .into_iter()
                .try_for_each(|family| put_slice(&state, &web, family, &ports, padded))?;
            leading_zeros_are_dropped(lab, &state)
        },
    )
}

fn leading_zeros_are_dropped(lab: &Lab, state: &dyn State) -> Result<()> {
    let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
    let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
    let web = web(lab);
    for family in Family::BOTH {
        for frontend in [
            Frontend::ExternalIp,
            Frontend::LoadBalancer,
            Frontend::NodePort,
        ] {
            check_answer(&lab.client, web.address(lab, frontend, family))?;
        }
        check_answer(&lab.pod1, web.address(lab, Frontend::ClusterIp, family))?;
        // It is not in the ranges, which are read as well.
        check_silence(&lab.pod1, web.address(lab, Frontend::LoadBalancer, family))?;
    }
    check_quarantine(
        &agent,
        &[
            "10.096.000.080",
            "172.031.000.100/032",
            "010.244.002.010",
            "fd00:00010:",
        ],
    )?;
    agent.stop().map(drop)
}

#[test]
fn manifests_with_unknown_values_are_served_without_them() -> Result<()> {
    isolated(
        "partly_used::manifests_with_unknown_values_are_served_without_them",
        |lab| {
            let state = Manifests::new(lab)?;
            let (web, typed) = (web(lab), typed(lab));
            let [balancer4, balancer6] = addresses(&web, lab, Frontend::LoadBalancer, plain);
            let ports = json!([
                {"name": "odd", "protocol": "MPTCP", "port": TARGET_PORT},
                {"name": "web", "protocol": "TCP", "port": TARGET_PORT},
            ]);
            let cluster_ips = |service| addresses(service, lab, Frontend::ClusterIp, plain);
            let web_service = json!({
                "spec": {
                    "type": "LoadBalancer",
                    "clusterIP": cluster_ips(&web)[0],
                    "clusterIPs": cluster_ips(&web),
                    "ipFamilies": ["IPv4", "IPv5"],
                    "externalIPs": addresses(&web, lab, Frontend::ExternalIp, plain),
                    "externalTrafficPolicy": "Near",
                    "internalTrafficPolicy": "Near",
                    "sessionAffinity": "Sticky",
                    "ports": [
                        {"name": "odd", "protocol": "MPTCP", "port": PORT + 1},
                        {"name": "web", "protocol": "TCP", "port": PORT, "nodePort": web.node_port()},
                    ],
                },
                "status": {"loadBalancer": {"ingress": [
                    {"ip": balancer4, "ipMode": "Tunnel"}, {"ip": balancer6, "ipMode": "VIP"},
                ]}},
            });
            let typed_service = json!({"spec": {
                "type": "Balancer",
                "clusterIP": cluster_ips(&typed)[0],
                "clusterIPs": cluster_ips(&typed),
                "ports": [{"name": "web", "port": PORT}],
            }});
            let mut objects = vec![
                manifest("Service", web.name, web_service),
                manifest("Service", typed.name, typed_service),
            ];
            for service in [&web, &typed] {
                objects.extend(
                    Family::BOTH.map(|family| slice_manifest(service, family, &ports, plain)),
                );
            }
            let mut unknown_family = slice_manifest(&web, Family::V4, &ports, plain);
            unknown_family["metadata"]["name"] = "web-ipv5".into();
            unknown_family["addressType"] = "IPv5".into();
            objects.push(unknown_family);
            write_all(&state, &objects)?;
            unknown_values_are_ignored(lab, &state)
        },
    )
}

#[test]
fn etcd_values_with_unknown_values_are_served_without_them() -> Result<()> {
    isolated(
        "partly_used::etcd_values_with_unknown_values_are_served_without_them",
        |lab| {
            let state = Etcd::start(lab)?;
            let (web, typed) = (web(lab), typed(lab));
            let [balancer4, balancer6] = addresses(&web, lab, Frontend::LoadBalancer, plain);
            let ports = json!([
                {"name": "odd", "protocol": "MPTCP", "port": TARGET_PORT},
                {"name": "web", "protocol": "TCP", "port": TARGET_PORT},
            ]);
            let cluster_ips = |service| addresses(service, lab, Frontend::ClusterIp, plain);
            let web_service = json!({
                "name": web.name, "namespace": NAMESPACE, "service_type": "LoadBalancer",
                "cluster_ip": cluster_ips(&web)[0],
                "cluster_ips": cluster_ips(&web),
                "ip_families": ["IPv4", "IPv5"],
                "external_ips": addresses(&web, lab, Frontend::ExternalIp, plain),
                "external_traffic_policy": "Near",
                "internal_traffic_policy": "Near",
                "session_affinity": "Sticky",
                "load_balancer_ingress": [
                    {"ip": balancer4, "ip_mode": "Tunnel"}, {"ip": balancer6, "ip_mode": "VIP"},
                ],
                "port": [
                    {"name": "odd", "protocol": "MPTCP", "port": PORT + 1},
                    {"name": "web", "protocol": "TCP", "port": PORT, "node_port": web.node_port()},
                ],
            });
            let typed_service = json!({
                "name": typed.name, "namespace": NAMESPACE, "service_type": "Balancer",
                "cluster_ip": cluster_ips(&typed)[0],
                "cluster_ips": cluster_ips(&typed),
                "port": [{"name": "web", "protocol": "TCP", "port": PORT}],
            });
            state.put_value(&Etcd::key(&web), &web_service.to_string())?;
            state.put_value(&Etcd::key(&typed), &typed_service.to_string())?;
            for (service, family) in [&web, &typed]
                .into_iter()
                .flat_map(|s| Family::BOTH.map(|f| (s, f)))
            {
                put_slice(&state, service, family, &ports, plain)?;
            }
            let unknown_family = json!({
                "name": "web-ipv5", "namespace": NAMESPACE, "service_name": web.name, "address_type": "IPv5",
                "endpoints": [{"addresses": ["x"], "conditions": {"ready": true}}], "ports": ports,
            });
            state.put_value(&slice_key("web-ipv5"), &unknown_family.to_string())?;
            unknown_values_are_ignored(lab, &state)
        },
    )
}

fn unknown_values_are_ignored(lab: &Lab, state: &dyn State) -> Result<()> {
    let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
    let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
    let (web, typed) = (web(lab), typed(lab));
    for family in Family::BOTH {
        for frontend in [Frontend::ExternalIp, Frontend::NodePort] {
            check_answer(&lab.client, web.address(lab, frontend, family))?;
        }
        for service in [&web, &typed] {
            check_answer(&lab.pod1, service.address(lab, Frontend::ClusterIp, family))?;
        }
    }
    // Only of the mode `VIP` it is known that nodes answer for the address.
    check_silence(
        &lab.client,
        web.address(lab, Frontend::LoadBalancer, Family::V4),
    )?;
    check_answer(
        &lab.client,
        web.address(lab, Frontend::LoadBalancer, Family::V6),
    )?;
    check_quarantine(
        &agent,
        &["Near", "Sticky", "IPv5", "Tunnel", "MPTCP", "Balancer"],
    )?;
    agent.stop().map(drop)
}

#[test]
fn manifests_with_bad_addresses_are_served_without_them() -> Result<()> {
    isolated(
        "partly_used::manifests_with_bad_addresses_are_served_without_them",
        |lab| {
            let state = Manifests::new(lab)?;
            let web = web(lab);
            let cluster_ips = addresses(&web, lab, Frontend::ClusterIp, plain);
            let ingress = beside_bad(
                addresses(&web, lab, Frontend::LoadBalancer, plain),
                "127.0.0.9",
            );
            let spec = json!({
                "type": "LoadBalancer",
                "clusterIP": cluster_ips[0],
                "clusterIPs": [&cluster_ips[0], &cluster_ips[1], "10.96.0.300"],
                "externalIPs": beside_bad(addresses(&web, lab, Frontend::ExternalIp, plain), "192.0.2"),
                "loadBalancerSourceRanges": beside_bad(client_only(lab), "10.0.0.0/99"),
                "ports": [{"name": "web", "port": PORT, "nodePort": web.node_port()}],
            });
            let status = json!({"loadBalancer": {"ingress": ingress.map(|ip| json!({"ip": ip}))}});
            let mut objects = vec![manifest(
                "Service",
                web.name,
                json!({"spec": spec, "status": status}),
            )];
            for family in Family::BOTH {
                let ports = json!([{"name": "web", "port": TARGET_PORT}]);
                let mut slice = slice_manifest(&web, family, &ports, plain);
                add_bad_endpoints(&mut slice);
                objects.push(slice);
            }
            write_all(&state, &objects)?;
            bad_addresses_are_left_out(lab, &state)
        },
    )
}

#[test]
fn etcd_values_with_bad_addresses_are_served_without_them() -> Result<()> {
    isolated(
        "partly_used::etcd_values_with_bad_addresses_are_served_without_them",
        |lab| {
            let state = Etcd::start(lab)?;
            let web = web(lab);
            let cluster_ips = addresses(&web, lab, Frontend::ClusterIp, plain);
            let service = json!({
                "name": web.name, "namespace": NAMESPACE, "service_type": "LoadBalancer",
                "cluster_ip": cluster_ips[0],
                "cluster_ips": [&cluster_ips[0], "10.96.0.300", &cluster_ips[1]],
                "external_ips": beside_bad(addresses(&web, lab, Frontend::ExternalIp, plain), "192.0.2"),
                "lb_ingress_ips": beside_bad(addresses(&web, lab, Frontend::LoadBalancer, plain), "127.0.0.9"),
                "loadbalancer_source_ranges": beside_bad(client_only(lab), "10.0.0.0/99"),
                "port": [{"name": "web", "protocol": "TCP", "port": PORT, "node_port": web.node_port()}],
            });
            state.put_value(&Etcd::key(&web), &service.to_string())?;
            for family in Family::BOTH {
                let ports = json!([{"name": "web", "protocol": "TCP", "port": TARGET_PORT}]);
                let mut slice = slice_value(&web, family, &ports, plain);
                add_bad_endpoints(&mut slice);
                state.put_value(&slice_key(&slice_name(&web, family)), &slice.to_string())?;
            }
            bad_addresses_are_left_out(lab, &state)
        },
    )
}

/// These addresses, behind one that cannot be used.
fn beside_bad([one, other]: [String; 2], bad: &str) -> [String; 3] {
    [bad.to_owned(), one, other]
}

/// Endpoints of which none can be used, before the good one.
fn add_bad_endpoints(slice: &mut Value) {
    if let Some(endpoints) = slice["endpoints"].as_array_mut() {
        for bad in ["10.244.2", "169.254.7.7", "fe80::7"] {
            endpoints.insert(
                0,
                json!({"addresses": [bad], "conditions": {"ready": true}}),
            );
        }
    }
}

fn bad_addresses_are_left_out(lab: &Lab, state: &dyn State) -> Result<()> {
    let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
    let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
    let web = web(lab);
    for family in Family::BOTH {
        for frontend in [
            Frontend::ExternalIp,
            Frontend::LoadBalancer,
            Frontend::NodePort,
        ] {
            check_answer(&lab.client, web.address(lab, frontend, family))?;
        }
        check_answer(&lab.pod1, web.address(lab, Frontend::ClusterIp, family))?;
        // It is in none of the ranges that are left.
        check_silence(&lab.pod1, web.address(lab, Frontend::LoadBalancer, family))?;
    }
    let left_out = [
        "10.96.0.300",
        "192.0.2\\\"",
        "127.0.0.9",
        "10.0.0.0/99",
        "10.244.2\\\"",
        "169.254.7.7",
        "fe80::7",
    ];
    check_quarantine(&agent, &left_out)?;
    agent.stop().map(drop)
}

fn web(lab: &Lab) -> Service {
    Service::new("web", 80, &[lab.pod3.host])
}

/// A service of an unknown type.
fn typed(lab: &Lab) -> Service {
    Service::new("typed", 81, &[lab.pod3.host])
}

fn check_answer(from: &Namespace, to: SocketAddr) -> Result<()> {
    let flow = format!("{} -> {to}", from.host.name);
    let failed = |error: LabError| LabError::Unexpected(format!("{flow}: {error}"));
    assert_eq!(
        from.ask(Protocol::Tcp, to)?.answer().map_err(failed)?.by,
        "pod3",
        "{flow}"
    );
    Ok(())
}

fn check_silence(from: &Namespace, to: SocketAddr) -> Result<()> {
    let outcome = from.ask_within(Protocol::Tcp, to, NO_ANSWER_TIMEOUT)?;
    assert_eq!(outcome, Outcome::TimedOut, "{} -> {to}", from.host.name);
    Ok(())
}

/// Each of these values is reported as not used as written, and the rest of the object is active.
fn check_quarantine(agent: &Agent<'_>, texts: &[&str]) -> Result<()> {
    let quarantine = agent.http("GET", "/quarantine")?;
    let missing: Vec<&&str> = texts
        .iter()
        .filter(|text| !quarantine.body.contains(**text))
        .collect();
    assert!(
        missing.is_empty(),
        "{missing:?} is not in {}",
        quarantine.body
    );
    for value in quarantine.json()?.as_array().into_iter().flatten() {
        assert_eq!(value["active_state"], "the rest", "{value}");
    }
    Ok(())
}

/// The addresses of one kind of frontend, in this spelling.
fn addresses(
    service: &Service,
    lab: &Lab,
    frontend: Frontend,
    spelling: impl Fn(IpAddr) -> String,
) -> [String; 2] {
    Family::BOTH.map(|family| spelling(service.address(lab, frontend, family).ip()))
}

fn plain(address: IpAddr) -> String {
    address.to_string()
}

/// With leading zeros, as older API servers accepted it.
fn padded(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.octets().map(|octet| format!("{octet:03}")).join("."),
        IpAddr::V6(v6) => v6
            .segments()
            .map(|segment| format!("{segment:05x}"))
            .join(":"),
    }
}

/// The ranges, with leading zeros, in which only the client is.
fn client_only(lab: &Lab) -> [String; 2] {
    let client = lab.client.host;
    [
        format!("{}/032", padded(client.v4.into())),
        format!("{}/0128", padded(client.v6.into())),
    ]
}

/// A namespaced object with these fields.
fn manifest(kind: &str, name: &str, mut fields: Value) -> Value {
    fields["apiVersion"] = if kind == "Service" {
        "v1"
    } else {
        "discovery.k8s.io/v1"
    }
    .into();
    fields["kind"] = kind.into();
    fields["metadata"] = json!({"name": name, "namespace": NAMESPACE});
    fields
}

fn slice_manifest(
    service: &Service,
    family: Family,
    ports: &Value,
    spelling: impl Fn(IpAddr) -> String,
) -> Value {
    let fields = json!({
        "addressType": address_type(family),
        "ports": ports,
        "endpoints": [{
            "addresses": [spelling(service.backends[0].address(family))], "conditions": {"ready": true},
        }],
    });
    let mut slice = manifest("EndpointSlice", &slice_name(service, family), fields);
    slice["metadata"]["labels"] = json!({"kubernetes.io/service-name": service.name});
    slice
}

fn write_all(state: &Manifests, objects: &[Value]) -> Result<()> {
    // JSON is YAML too.
    let documents: Vec<String> = objects.iter().map(ToString::to_string).collect();
    state.write("objects.yaml", &documents.join("\n---\n"))
}

fn put_slice(
    state: &Etcd<'_>,
    service: &Service,
    family: Family,
    ports: &Value,
    spelling: impl Fn(IpAddr) -> String,
) -> Result<()> {
    let value = slice_value(service, family, ports, spelling);
    state.put_value(&slice_key(&slice_name(service, family)), &value.to_string())
}

fn slice_value(
    service: &Service,
    family: Family,
    ports: &Value,
    spelling: impl Fn(IpAddr) -> String,
) -> Value {
    json!({
        "name": slice_name(service, family), "namespace": NAMESPACE, "service_name": service.name,
        "address_type": address_type(family), "ports": ports,
        "endpoints": [{
            "addresses": [spelling(service.backends[0].address(family))], "conditions": {"ready": true},
        }],
    })
}

fn slice_key(name: &str) -> String {
    format!("{ROOT}/endpointslice/{name}/namespace/{NAMESPACE}")
}

fn slice_name(service: &Service, family: Family) -> String {
    format!("{}-{}", service.name, address_type(family).to_lowercase())
}

const fn address_type(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}
