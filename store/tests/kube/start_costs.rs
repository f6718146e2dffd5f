//! The cost of an agent's start for the API server, compared with that of a kube-proxy with the same objects.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use contiv_store_testing::{Authority, Exchange};

use super::*;

const SERVICES: usize = 1000;
const ENDPOINTS: usize = 4;
const NODES: usize = 20;
const NODE: &str = "node-7";
/// The maximum bytes of an agent's start, in percent of those of kube-proxy's.
const MAX_PERCENTAGE: usize = 110;

/// The objects of a cluster, with the fields that a real API server gives them; some are of no concern to a node's proxy.
fn fill(server: &ApiServer) {
    for i in 0..NODES {
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
        (
            "of-another-proxy",
            json!({ "service.kubernetes.io/service-proxy-name": "other" }),
        ),
    ] {
        let mut of_others = [
            cluster_service(0, "", &mut random),
            slice(0, "", &mut random),
        ];
        for object in &mut of_others {
            object["metadata"]["name"] = name.into();
            object["metadata"]["labels"] = labels.clone();
            server.put(object.clone()).unwrap();
        }
    }
}

/// A xorshift generator. Its output is not compressible, like the random names and addresses of a real cluster.
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

/// The requests of a start, until all watches are open.
struct StartRequests {
    exchanges: Vec<Arc<Exchange>>,
    connections: usize,
}

impl StartRequests {
    /// The bytes of the answers.
    fn bytes(&self) -> usize {
        self.exchanges.iter().map(|exchange| exchange.bytes()).sum()
    }

    /// The requests with the bytes of their answers: first the lists, in their order. What differs from one start to
    /// the next is left out.
    fn report(&self, client: &str) -> String {
        let line = |exchange: &Arc<Exchange>| {
            let mut path = without(&exchange.path, "timeoutSeconds=");
            if path.contains("watch=true") {
                path = without(&path, "resourceVersion=");
            }
            format!("{:>4} KiB  {path}\n", exchange.bytes() / 1024)
        };
        let (mut watches, lists): (Vec<String>, Vec<String>) = self
            .exchanges
            .iter()
            .map(line)
            .partition(|line| line.contains("watch=true"));
        watches.sort_unstable();
        let plural = if self.connections == 1 { "" } else { "s" };
        format!(
            "{client}, over {} connection{plural}:\n{}{}",
            self.connections,
            lists.concat(),
            watches.concat()
        )
    }
}

/// A query without the value after `name`.
fn without(query: &str, name: &str) -> String {
    match query.split_once(name) {
        Some((before, rest)) => {
            format!(
                "{before}{name}{}",
                rest.trim_start_matches(|c: char| c.is_ascii_digit())
            )
        }
        None => query.to_owned(),
    }
}

/// Starts the feed of an agent. Returns its list and the requests.
async fn start_agent(server: &ApiServer) -> (Snapshot, StartRequests) {
    let before = server.connections();
    let store = with_scope(server, &Scope::node(NODE, "", &KubeAddress::default()));
    let (mut events, _handle) = Feed::start(Arc::new(store), ROOT);
    let listed = snapshot(&mut events).await;
    let mut exchanges = Vec::new();
    while exchanges
        .iter()
        .filter(|one: &&Arc<Exchange>| one.path.contains("watch=true"))
        .count()
        < 3
    {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        exchanges.extend(server.take_exchanges());
    }
    (
        listed,
        StartRequests {
            exchanges,
            connections: server.connections() - before,
        },
    )
}

/// The types that kube-proxy reads, with its selectors.
fn kube_proxy_resources() -> [String; 3] {
    let services = "labelSelector=%21service.kubernetes.io%2Fservice-proxy-name";
    let slices = "labelSelector=%21service.kubernetes.io%2Fheadless";
    [
        format!("/api/v1/nodes?fieldSelector=metadata.name%3D{NODE}"),
        format!("/api/v1/services?fieldSelector=spec.clusterIP%21%3DNone&{services}"),
        format!("/apis/discovery.k8s.io/v1/endpointslices?{slices}"),
    ]
}

/// Sends the requests of a start of kube-proxy 1.36, as in its source (`cmd/kube-proxy/app/server.go`, client-go's reflector): lists
/// and watches if client-go's feature gate `WatchListClient` is off, as in older versions; watches that begin with initial events if
/// it is on, the default since 1.35. The list and the watch of `ServiceCIDR`, some hundred bytes, are left out.
fn start_kube_proxy(server: &ApiServer, is_streaming: bool) -> StartRequests {
    let watch = "watch=true&allowWatchBookmarks=true&timeoutSeconds=1";
    for resource in kube_proxy_resources() {
        let lists = format!("{resource}&limit=500&resourceVersion=0");
        // The history of the test server stands for the initial events: it has the same objects.
        let since = if is_streaming {
            FIRST_VERSION
        } else {
            NEWEST_VERSION
        };
        let watches = format!("{resource}&{watch}&resourceVersion={since}");
        for path in [lists, watches].into_iter().skip(is_streaming.into()) {
            request(server, &path);
        }
    }
    // kube-proxy speaks HTTP/2, so it needs only one.
    StartRequests {
        exchanges: server.take_exchanges(),
        connections: 1,
    }
}

fn request(server: &ApiServer, path: &str) {
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

/// The versions of the test server before the first object, and after the last.
const FIRST_VERSION: usize = 1000;
const NEWEST_VERSION: usize = FIRST_VERSION + NODES + 2 * SERVICES + 4;

#[tokio::test(flavor = "multi_thread")]
async fn start_requests_and_bytes_are_as_recorded() {
    let server = ApiServer::start_with_tls(Authority::new().unwrap()).unwrap();
    fill(&server);
    let (listed, agents) = start_agent(&server).await;
    let services = SERVICES + 1;
    let slices = SERVICES + 1;
    assert_eq!(
        listed.entries.len(),
        1 + services + slices,
        "its own node, and what kube-proxy reads too"
    );
    for exchange in &agents.exchanges {
        assert!(exchange.user_agent.starts_with("contiv/"), "{exchange:?}");
        let is_watch = exchange.path.contains("watch=true");
        assert_eq!(
            exchange.accept_encoding,
            if is_watch { "identity" } else { "gzip" },
            "{exchange:?}"
        );
        let has_protobuf = !exchange.path.contains("externalworkloads");
        assert_eq!(
            exchange.accept.contains("protobuf"),
            has_protobuf,
            "{exchange:?}"
        );
    }

    let without_tls = ApiServer::start().unwrap();
    fill(&without_tls);
    without_tls.limit_watches(std::time::Duration::from_millis(100));
    let (lists, streams) = (
        start_kube_proxy(&without_tls, false),
        start_kube_proxy(&without_tls, true),
    );
    let ratio = |one: &StartRequests, other: &StartRequests| one.bytes() * 100 / other.bytes();
    let ratio = ratio(&agents, &lists);
    assert!(
        ratio <= MAX_PERCENTAGE,
        "{ratio} % of the bytes of kube-proxy's lists"
    );
    let report = [
        agents.report("contiv"),
        lists.report("kube-proxy with lists"),
        streams.report("kube-proxy with streams of initial events"),
    ];
    let recorded = include_str!("start_costs.txt");
    let recorded: String = recorded
        .split_inclusive('\n')
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert_eq!(
        report.join("\n"),
        recorded.trim_start(),
        "in store/tests/kube/start_costs.txt"
    );
}
