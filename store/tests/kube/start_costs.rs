//! The cost of an agent's start for the API server, compared with kube-proxy's with the same objects.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use contiv_store_testing::{Authority, Exchange};

use super::*;

const SERVICES: usize = 1000;
const ENDPOINTS: usize = 4;
const NODE: &str = "node-7";
/// The bytes of an agent's start for each byte of kube-proxy's: JSON instead of protobuf, both compressed.
const MAX_RATIO: f64 = 1.5;

/// The objects of a cluster, with the fields that a real API server gives them; some are of no concern to a node's proxy.
fn fill(server: &ApiServer) {
    for i in 0..20 {
        server.put(cluster_node(&format!("node-{i}"))).unwrap();
    }
    let mut random = Random(1);
    for i in 0..SERVICES {
        let uid = random.uid();
        server.put(cluster_service(i, &uid, &mut random)).unwrap();
        server.put(slice(i, &uid, &mut random)).unwrap();
    }
    for (name, labels) in [
        ("headless", json!({ "service.kubernetes.io/headless": "" })),
        ("of-another-proxy", json!({ "service.kubernetes.io/service-proxy-name": "other" })),
    ] {
        let mut of_others = [cluster_service(0, "", &mut random), slice(0, "", &mut random)];
        for object in &mut of_others {
            object["metadata"]["name"] = name.into();
            object["metadata"]["labels"] = labels.clone();
            server.put(object.clone()).unwrap();
        }
    }
}

/// Not compressible, as what a real cluster makes up: xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn uid(&mut self) -> String {
        let (high, low) = (self.next(), self.next());
        format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
            high >> 32,
            high & 0xffff,
            low >> 52,
            low & 0xfff,
            low >> 16
        )
    }
}

fn managed(manager: &str, fields: &Value) -> Value {
    json!([{ "manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-03-01T10:11:12Z",
        "fieldsType": "FieldsV1", "fieldsV1": fields }])
}

fn cluster_node(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "a" } },
        "spec": { "podCIDRs": ["10.244.0.0/24"] } })
}

fn cluster_service(i: usize, uid: &str, random: &mut Random) -> Value {
    let address = format!("10.96.{}.{}", random.next() % 256, i % 256);
    json!({ "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": format!("service-{i}"), "namespace": format!("team-{}", i % 40), "uid": uid,
            "creationTimestamp": "2026-03-01T10:11:12Z", "labels": { "app": format!("app-{i}"), "team": format!("team-{}", i % 40) },
            "managedFields": managed("kubectl-create", &json!({ "f:metadata": { "f:labels": { ".": {}, "f:app": {}, "f:team": {} } },
                "f:spec": { "f:internalTrafficPolicy": {}, "f:ports": { ".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": {
                    ".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {} } },
                    "f:selector": {}, "f:sessionAffinity": {}, "f:type": {} } })) },
        "spec": { "clusterIP": address, "clusterIPs": [address], "type": "ClusterIP", "sessionAffinity": "None",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
            "selector": { "app": format!("app-{i}") },
            "ports": [{ "name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080 }] },
        "status": { "loadBalancer": {} } })
}

fn slice(i: usize, uid: &str, random: &mut Random) -> Value {
    let mut suffix = || format!("{:05x}", random.next() >> 44);
    let name = format!("service-{i}-{}", suffix());
    let endpoints: Vec<Value> = (0..ENDPOINTS)
        .map(|_| {
            json!({
                "addresses": [format!("10.244.{}.{}", random.next() % 256, random.next() % 256)],
                "conditions": { "ready": true, "serving": true, "terminating": false },
                "nodeName": format!("node-{}", random.next() % 20), "zone": "a",
                "targetRef": { "kind": "Pod", "namespace": format!("team-{}", i % 40), "uid": random.uid(),
                    "name": format!("app-{i}-{:010x}-{:05x}", random.next() >> 24, random.next() >> 44) },
            })
        })
        .collect();
    json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": { "name": name, "generateName": format!("service-{i}-"), "namespace": format!("team-{}", i % 40),
            "uid": random.uid(), "generation": 3, "creationTimestamp": "2026-03-01T10:11:12Z",
            "annotations": { "endpoints.kubernetes.io/last-change-trigger-time": "2026-03-01T10:12:12Z" },
            "labels": { "app": format!("app-{i}"), "team": format!("team-{}", i % 40),
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                "kubernetes.io/service-name": format!("service-{i}") },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Service", "name": format!("service-{i}"), "uid": uid,
                "controller": true, "blockOwnerDeletion": true }],
            "managedFields": managed("kube-controller-manager", &json!({ "f:addressType": {}, "f:endpoints": {},
                "f:metadata": { "f:annotations": { ".": {}, "f:endpoints.kubernetes.io/last-change-trigger-time": {} },
                    "f:generateName": {}, "f:labels": { ".": {}, "f:app": {}, "f:endpointslice.kubernetes.io/managed-by": {},
                        "f:kubernetes.io/service-name": {}, "f:team": {} },
                    "f:ownerReferences": { ".": {}, "k:{\"uid\":\"\"}": {} } }, "f:ports": {} })) },
        "addressType": "IPv4", "endpoints": endpoints,
        "ports": [{ "name": "http", "protocol": "TCP", "port": 8080 }] })
}

/// The requests of an agent's start, once all watches are open.
async fn start_agent(server: &ApiServer) -> (Snapshot, Vec<Arc<Exchange>>) {
    let store = with_scope(server, &Scope::node(NODE, "", &KubeAddress::default()));
    let (mut events, _handle) = Feed::start(Arc::new(store), ROOT);
    let listed = snapshot(&mut events).await;
    let mut exchanges = Vec::new();
    while exchanges.iter().filter(|one: &&Arc<Exchange>| one.path.contains("watch=true")).count() < 3 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        exchanges.extend(server.take_exchanges());
    }
    (listed, exchanges)
}

/// Those of kube-proxy 1.36, from its source (`cmd/kube-proxy/app/server.go`, client-go's reflector), with lists; a list of
/// `ServiceCIDR` objects comes to them.
fn start_kube_proxy(server: &ApiServer) -> Vec<Arc<Exchange>> {
    let selected =
        "labelSelector=%21service.kubernetes.io%2Fheadless%2C%21service.kubernetes.io%2Fservice-proxy-name";
    for path in [
        format!("/api/v1/nodes?fieldSelector=metadata.name%3D{NODE}&limit=500&resourceVersion=0"),
        format!(
            "/api/v1/services?fieldSelector=spec.clusterIP%21%3DNone&{selected}&limit=500&resourceVersion=0"
        ),
        format!("/apis/discovery.k8s.io/v1/endpointslices?{selected}&limit=500&resourceVersion=0"),
    ] {
        let mut connection = TcpStream::connect(server.endpoint()).unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: api\r\nConnection: close\r\nAccept-Encoding: gzip\r\n\
            Accept: application/vnd.kubernetes.protobuf,application/json\r\n\r\n"
        );
        connection.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{path}");
    }
    server.take_exchanges()
}

fn bytes_of(exchanges: &[Arc<Exchange>]) -> usize {
    exchanges.iter().map(|exchange| exchange.bytes()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn start_costs_are_at_most_one_and_a_half_of_kube_proxys() {
    let server = ApiServer::start().unwrap();
    fill(&server);
    let (listed, agents) = start_agent(&server).await;
    assert_eq!(listed.entries.len(), 1 + 2 * SERVICES, "its own node, and what is for its proxy");
    let proxys = start_kube_proxy(&server);
    let requests = (agents.len(), proxys.len());
    let (agents, proxys) = (bytes_of(&agents), bytes_of(&proxys));
    println!("{} requests, {agents} bytes; kube-proxy's lists: {}, {proxys} bytes", requests.0, requests.1);
    #[expect(clippy::cast_precision_loss, reason = "a ratio of some megabytes")]
    let ratio = agents as f64 / proxys as f64;
    assert!(ratio <= MAX_RATIO, "{agents} bytes are {ratio:.2} of kube-proxy's {proxys}");
    assert!(ratio > 0.5, "kube-proxy's {proxys} bytes were not compressed: {agents}");
}

#[tokio::test(flavor = "multi_thread")]
async fn start_requests_each_type_once_over_one_connection() {
    let server = ApiServer::start_with_tls(Authority::new().unwrap()).unwrap();
    fill(&server);
    let (_, exchanges) = start_agent(&server).await;
    let selected =
        "labelSelector=%21service.kubernetes.io%2Fheadless%2C%21service.kubernetes.io%2Fservice-proxy-name";
    let (nodes, services, slices) = (
        format!("/api/v1/nodes?fieldSelector=metadata.name%3D{NODE}"),
        format!("/api/v1/services?{selected}"),
        format!("/apis/discovery.k8s.io/v1/endpointslices?{selected}"),
    );
    let requests: Vec<String> = exchanges.iter().map(|exchange| exchange.path.clone()).collect();
    let lists = [&nodes, &services, &slices].map(|path| format!("{path}&limit=500&resourceVersion=0"));
    assert_eq!(requests[..3], lists);
    assert_eq!(
        requests[3], "/apis/workload.linkerd.io/v1beta1/externalworkloads?limit=500&resourceVersion=0",
        "which this server does not have"
    );
    let mut watches = requests[4..].to_vec();
    watches.sort();
    assert_eq!(watches.len(), 3, "{requests:?}");
    for (watch, path) in watches.iter().zip([&nodes, &services, &slices]) {
        let begin = format!("{path}&watch=true&allowWatchBookmarks=true&timeoutSeconds=");
        assert!(watch.starts_with(&begin), "{watch}");
    }
    assert_eq!(server.connections(), 1, "HTTP/2");
    for exchange in &exchanges {
        assert!(exchange.user_agent.starts_with("contiv/"), "{exchange:?}");
        let is_watch = exchange.path.contains("watch=true");
        assert_eq!(exchange.accept_encoding, if is_watch { "identity" } else { "gzip" }, "{exchange:?}");
    }
}
