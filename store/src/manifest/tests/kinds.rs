//! The stored form of each kind.

use super::*;
use contiv_proto::message::{node::node_address, service::service::service_port::int_or_string};

#[test]
fn service_as_kubectl_prints_it() {
    let Object::Service(service) = object(
        r#"
apiVersion: v1
kind: Service
metadata:
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: |
      {"apiVersion":"v1"}
    example.com/a: "1"
  creationTimestamp: "2024-05-01T12:00:00Z"
  labels: {app: web}
  name: web
  namespace: shop
  resourceVersion: "12"
  uid: 6a3c
  managedFields: [{manager: kubectl}]
spec:
  allocateLoadBalancerNodePorts: true
  clusterIP: 10.96.0.7
  clusterIPs: [10.96.0.7, "fd00::7"]
  externalIPs: [192.0.2.1]
  externalTrafficPolicy: Local
  healthCheckNodePort: 32000
  internalTrafficPolicy: Cluster
  ipFamilies: [IPv4, IPv6]
  ipFamilyPolicy: PreferDualStack
  loadBalancerClass: example.com/lb
  loadBalancerIP: 203.0.113.1
  loadBalancerSourceRanges: [" 198.51.100.0/24 "]
  ports:
  - {name: http, nodePort: 30080, port: 80, protocol: TCP, targetPort: 8080, appProtocol: http}
  - {name: dns, port: 53, protocol: UDP, targetPort: dns}
  publishNotReadyAddresses: true
  selector: {app: web}
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}
  trafficDistribution: PreferClose
  type: LoadBalancer
status:
  loadBalancer:
    ingress:
    - {ip: 203.0.113.1, ipMode: Proxy, ports: [{port: 80, protocol: TCP}]}
    - hostname: lb.example.com
"#,
    ) else {
        panic!("no service")
    };
    assert_eq!(
        (service.name.as_str(), service.namespace.as_str()),
        ("web", "shop")
    );
    assert_eq!(service.creation_timestamp, 1_714_564_800);
    assert_eq!(
        (service.labels["app"].as_str(), service.annotations.len()),
        ("web", 2)
    );
    assert_eq!(service.annotations["example.com/a"], "1");
    assert_eq!(
        (service.cluster_ip.as_str(), service.cluster_ips.len()),
        ("10.96.0.7", 2)
    );
    assert_eq!(service.external_ips, ["192.0.2.1"]);
    assert_eq!(service.external_traffic_policy, "Local");
    assert_eq!(service.internal_traffic_policy, "Cluster");
    assert_eq!(
        (
            service.health_check_node_port,
            service.session_affinity_timeout
        ),
        (32000, 60)
    );
    assert_eq!(
        (
            service.service_type.as_str(),
            service.session_affinity.as_str()
        ),
        ("LoadBalancer", "ClientIP")
    );
    assert_eq!(service.loadbalancer_source_ranges, ["198.51.100.0/24"]);
    assert_eq!(
        (
            service.loadbalancer_ip.as_str(),
            service.load_balancer_class.as_str()
        ),
        ("203.0.113.1", "example.com/lb")
    );
    assert!(service.publish_not_ready_addresses);
    assert_eq!(service.traffic_distribution, "PreferClose");
    let [http, dns] = service.port.as_slice() else {
        panic!("two ports")
    };
    assert_eq!(
        (http.port, http.node_port, http.app_protocol.as_str()),
        (80, 30080, "http")
    );
    assert_eq!(http.target_port.as_ref().unwrap().int_val, 8080);
    let target = dns.target_port.as_ref().unwrap();
    assert_eq!(
        (target.r#type(), target.string_val.as_str()),
        (int_or_string::Type::String, "dns")
    );
    let [proxy, host] = service.load_balancer_ingress.as_slice() else {
        panic!("two ingresses")
    };
    assert_eq!(
        (proxy.ip.as_str(), proxy.ip_mode.as_str()),
        ("203.0.113.1", "Proxy")
    );
    assert_eq!(
        (host.ip.as_str(), host.hostname.as_str()),
        ("", "lb.example.com")
    );
}

#[test]
fn defaults_of_the_api_server_are_filled_in() {
    let Object::Service(service) = object(
        "{apiVersion: v1, kind: Service, metadata: {name: a, creationTimestamp: null}, \
         spec: {clusterIP: 10.0.0.1, sessionAffinity: ClientIP, ports: [{port: 80}], selector: null}}",
    ) else {
        panic!("no service")
    };
    assert_eq!(service.namespace, "default");
    assert_eq!(
        (
            service.service_type.as_str(),
            service.port[0].protocol.as_str()
        ),
        ("ClusterIP", "TCP")
    );
    assert_eq!(service.cluster_ips, ["10.0.0.1"]);
    assert_eq!(service.session_affinity_timeout, 10_800);
    assert_eq!(
        (
            service.port[0].target_port.as_ref(),
            service.creation_timestamp
        ),
        (None, 0)
    );

    let Object::Service(service) = object(SERVICE) else {
        panic!("no service")
    };
    assert_eq!(
        (
            service.session_affinity.as_str(),
            service.session_affinity_timeout
        ),
        ("None", 0)
    );
    let headless = SERVICE.replace("spec: {", "spec: {clusterIP: None, ");
    let Object::Service(service) = object(&headless) else {
        panic!("no service")
    };
    assert_eq!(service.cluster_ips, ["None"]);
}

#[test]
fn endpoint_slice_belongs_to_service_of_its_label() {
    let Object::EndpointSlice(slice) = object(
        r"
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-x7k2p
  namespace: shop
  labels: {kubernetes.io/service-name: web, a: b}
addressType: IPv4
endpoints:
- addresses: [10.1.1.2]
  conditions: {ready: true, serving: true, terminating: false}
  nodeName: n1
  zone: z1
  hints: {forZones: [{name: z1}], forNodes: [{name: n1}]}
  targetRef: {kind: Pod, name: web-1, namespace: shop, uid: u1}
- addresses: [10.1.1.3]
  conditions: {}
  hostname: web-2
- addresses: [10.1.1.4]
ports:
- {name: http, port: 8080, protocol: TCP, appProtocol: http}
- {}
",
    ) else {
        panic!("no slice")
    };
    assert_eq!(
        (slice.service_name.as_str(), slice.labels.len()),
        ("web", 2)
    );
    let [first, second, third] = slice.endpoints.as_slice() else {
        panic!("three endpoints")
    };
    assert_eq!(first.conditions.as_ref().unwrap().terminating, Some(false));
    assert_eq!(first.hints.as_ref().unwrap().for_nodes, ["n1"]);
    assert_eq!(
        (first.node_name.as_str(), first.zone.as_str()),
        ("n1", "z1")
    );
    assert_eq!(first.target_ref.as_ref().unwrap().name, "web-1");
    assert_eq!(
        (
            second.conditions.as_ref().unwrap().ready,
            second.host_name.as_str()
        ),
        (None, "web-2")
    );
    assert_eq!(third.conditions, None);
    let [http, all] = slice.ports.as_slice() else {
        panic!("two ports")
    };
    assert_eq!(
        (http.name.as_deref(), http.port),
        (Some("http"), Some(8080))
    );
    assert_eq!(
        (all.name.as_deref(), all.port, all.protocol.as_str()),
        (Some(""), None, "TCP")
    );
}

#[test]
fn external_workload_is_decoded_completely() {
    let Object::ExternalWorkload(workload) = object(
        r#"
apiVersion: workload.linkerd.io/v1beta1
kind: ExternalWorkload
metadata: {name: vm-1, namespace: shop, labels: {app: web, topology.kubernetes.io/zone: z1}}
spec:
  meshTLS: {identity: "spiffe://root.linkerd.cluster.local/vm-1", serverName: vm-1.shop.example}
  ports:
  - {name: http, port: 8080}
  - {port: 53, protocol: UDP}
  workloadIPs: [{ip: 192.0.2.7}, {ip: "2001:db8::7"}]
status:
  conditions:
  - {type: Ready, status: "True", lastTransitionTime: "2024-05-01T12:00:00Z", reason: Probed, message: it answers}
"#,
    ) else {
        panic!("no workload")
    };
    let mesh_tls = workload.mesh_tls.unwrap();
    assert_eq!(
        (mesh_tls.identity.as_str(), mesh_tls.server_name.as_str()),
        (
            "spiffe://root.linkerd.cluster.local/vm-1",
            "vm-1.shop.example"
        )
    );
    let ports: Vec<_> = workload
        .ports
        .iter()
        .map(|p| (p.name.as_str(), p.port, p.protocol.as_str()))
        .collect();
    assert_eq!(ports, [("http", 8080, "TCP"), ("", 53, "UDP")]);
    assert_eq!(workload.workload_ips, ["192.0.2.7", "2001:db8::7"]);
    let [ready] = workload.conditions.as_slice() else {
        panic!("one condition")
    };
    assert_eq!(
        (
            ready.r#type.as_str(),
            ready.status.as_str(),
            ready.last_probe_time
        ),
        ("Ready", "True", 0)
    );
    assert_eq!(ready.last_transition_time, 1_714_564_800);
    assert_eq!(
        (ready.reason.as_str(), ready.message.as_str()),
        ("Probed", "it answers")
    );
    assert_eq!(workload.labels["topology.kubernetes.io/zone"], "z1");
}

#[test]
fn endpoints_keep_ready_and_not_ready_apart() {
    let Object::Endpoints(endpoints) = object(
        "{apiVersion: v1, kind: Endpoints, metadata: {name: web}, subsets: [{addresses: [{ip: 10.1.1.2, \
         nodeName: n1, hostname: h, targetRef: {kind: Pod, name: p}}], notReadyAddresses: [{ip: 'fd00::1'}], \
         ports: [{port: 8080}]}, {}]}",
    ) else {
        panic!("no endpoints")
    };
    let [subset, empty] = endpoints.endpoint_subsets.as_slice() else {
        panic!("two subsets")
    };
    assert_eq!(
        (
            subset.addresses[0].ip.as_str(),
            subset.addresses[0].host_name.as_str()
        ),
        ("10.1.1.2", "h")
    );
    assert_eq!(subset.not_ready_addresses[0].ip, "fd00::1");
    assert_eq!(
        (subset.ports[0].port, subset.ports[0].protocol.as_str()),
        (8080, "TCP")
    );
    assert_eq!(
        *empty,
        contiv_proto::message::endpoints::EndpointSubset::default()
    );
}

#[test]
fn pod_has_its_addresses_node_and_ports() {
    let Object::Pod(pod) = object(
        "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {a: b}}, spec: {nodeName: n1, hostNetwork: true, \
         containers: [{name: c, image: i, ports: [{containerPort: 53, protocol: UDP, hostPort: 5353, hostIP: 1.2.3.4}, \
         {containerPort: 9, protocol: SCTP}]}]}, status: {phase: Running, hostIP: 192.168.0.1, podIP: 10.1.1.2, \
         podIPs: [{ip: 10.1.1.2}, {ip: 'fd00::2'}]}}",
    ) else {
        panic!("no pod")
    };
    assert_eq!(
        (pod.ip_address.as_str(), pod.ip_addresses.len()),
        ("10.1.1.2", 2)
    );
    assert_eq!(
        (pod.node_name.as_str(), pod.host_network, pod.phase.as_str()),
        ("n1", true, "Running")
    );
    let [port, sctp] = pod.container[0].port.as_slice() else {
        panic!("two ports")
    };
    assert_eq!(
        (sctp.container_port, sctp.protocol().as_str_name()),
        (9, "SCTP")
    );
    assert_eq!(
        (
            port.container_port,
            port.host_port,
            port.protocol().as_str_name()
        ),
        (53, 5353, "UDP")
    );
    assert_eq!(
        (
            pod.host_ip_address.as_str(),
            pod.labels.len(),
            pod.label.len()
        ),
        ("192.168.0.1", 1, 0)
    );
}

#[test]
fn node_has_its_ranges_addresses_and_labels() {
    let Object::Node(node) = object(
        "{apiVersion: v1, kind: Node, metadata: {name: n1, namespace: ignored, labels: {zone: z1}, \
         deletionTimestamp: '1970-01-01T00:01:00Z'}, \
         spec: {podCIDR: 10.1.1.0/24, podCIDRs: [10.1.1.0/24, 'fd00:1::/64'], providerID: x://n1, \
         taints: [{key: k, value: v, effect: NoSchedule}]}, \
         status: {addresses: [{type: Hostname, address: n1}, {type: Other, address: o}, \
         {type: InternalIP, address: 192.168.0.1}], nodeInfo: {machineID: m, operatingSystem: linux}}}",
    ) else {
        panic!("no node")
    };
    assert_eq!(
        (node.pod_cidr.as_str(), node.pod_cidrs.len()),
        ("10.1.1.0/24", 2)
    );
    let types: Vec<_> = node
        .addresses
        .iter()
        .map(contiv_proto::message::node::NodeAddress::r#type)
        .collect();
    assert_eq!(
        types,
        [
            node_address::Type::NodeHostName,
            node_address::Type::NodeInternalIp
        ]
    );
    let info = node.node_info.unwrap();
    assert_eq!(
        (info.machine_id.as_str(), info.operating_system.as_str()),
        ("m", "linux")
    );
    assert_eq!(
        (node.labels["zone"].as_str(), node.deletion_timestamp),
        ("z1", 60)
    );
    let taint = &node.taints[0];
    assert_eq!(
        (
            taint.key.as_str(),
            taint.value.as_str(),
            taint.effect.as_str()
        ),
        ("k", "v", "NoSchedule")
    );
}

#[test]
fn contivs_own_kinds_hold_stored_message() {
    let node = "{apiVersion: contiv.io/v1, kind: VppNode, metadata: {name: n1}, \
                spec: {id: 2, ip_addresses: [192.168.16.2/24]}}";
    let parsed = parse(node);
    assert_eq!(
        parsed.objects[0].key.to_path(),
        "/vnf-agent/contiv-ksr/allocatedIDs/2"
    );
    let Object::VppNode(node) = object(node) else {
        panic!("no node")
    };
    assert_eq!((node.name.as_str(), node.id), ("n1", 2));

    let allocation = "{apiVersion: contiv.io/v1, kind: CustomIPAllocation, metadata: {name: p, namespace: shop}, \
                      spec: {custom_interfaces: [{name: eth1, ipAddress: 10.9.9.9, service_endpoint: true}]}}";
    let Object::IpAllocation(allocation) = object(allocation) else {
        panic!("no allocation")
    };
    assert_eq!(
        (
            allocation.pod_name.as_str(),
            allocation.pod_namespace.as_str()
        ),
        ("p", "shop")
    );
    assert_eq!(allocation.custom_interfaces[0].ip_address, "10.9.9.9");
}

#[test]
fn stored_object_becomes_a_manifest_without_duplicates() {
    use contiv_proto::message::{pod, service};
    let label = pod::pod::Label {
        key: "app".to_owned(),
        value: "web".to_owned(),
    };
    let pod = pod::Pod {
        name: "p".into(),
        namespace: "n".into(),
        label: vec![label],
        ..Default::default()
    };
    assert_eq!(to_value(&pod.into())["metadata"]["labels"]["app"], "web");

    let lb_ingress_ips = vec![String::new(), "203.0.113.1".to_owned()];
    let service = service::Service {
        name: "s".into(),
        namespace: "n".into(),
        lb_ingress_ips,
        ..Default::default()
    };
    let ingress = &to_value(&service.into())["status"]["loadBalancer"]["ingress"];
    assert_eq!(*ingress, serde_json::json!([{"ip": "203.0.113.1"}]));
}
