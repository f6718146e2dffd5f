//! Agents read equal values of the same objects from a folder of manifests, from an API server, and from a store that the reflector
//! fills, with all fields that services depend on.

use std::{collections::BTreeMap, fs};

use bytes::Bytes;
use contiv_proto::{Key, Object, key::ROOT};
use contiv_store::{StoreUrl, etcd::EtcdAccess};
use contiv_store_testing::{ApiServer, MemoryStore};
use serde_json::{Value, json};

use crate::cluster::{Running, entries, object};

/// Objects of every type, with all fields that contiv uses.
fn objects() -> Vec<Value> {
    let mut objects = Vec::from(services());
    objects.extend(endpoints());
    objects.extend(pods_and_nodes());
    for object in &mut objects {
        // The API server would set another time.
        object["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z".into();
    }
    objects
}

fn services() -> [Value; 3] {
    let annotations = json!({
        "contiv.io/prefer-local": "true", "contiv.io/balance": "client-address",
        "contiv.io/session-affinity-scope": "service",
    });
    let full = json!({
        "metadata": {
            "labels": { "app": "web", "service.kubernetes.io/service-proxy-name": "contiv" },
            "annotations": annotations,
        },
        "spec": {
            "type": "LoadBalancer", "clusterIP": "10.96.0.80", "clusterIPs": ["10.96.0.80", "fd00:10:96::50"],
            "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack",
            "externalIPs": ["192.0.2.80", "2001:db8:1::50"], "selector": { "app": "web" },
            "ports": [
                { "name": "http", "port": 80, "targetPort": "web", "nodePort": 30080, "appProtocol": "http" },
                { "name": "dns", "protocol": "UDP", "port": 53, "targetPort": 5353, "nodePort": 30053 },
                { "name": "sig", "protocol": "SCTP", "port": 132, "nodePort": 30132 },
            ],
            "sessionAffinity": "ClientIP", "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 600 } },
            "externalTrafficPolicy": "Local", "internalTrafficPolicy": "Cluster", "healthCheckNodePort": 32080,
            "loadBalancerIP": "198.51.100.80", "loadBalancerClass": "example.org/lb",
            "loadBalancerSourceRanges": ["203.0.113.0/24", " 2001:db8:9::/48"],
            "allocateLoadBalancerNodePorts": true, "publishNotReadyAddresses": true,
            "trafficDistribution": "PreferSameNode",
        },
        "status": { "loadBalancer": { "ingress": [
            { "ip": "198.51.100.80", "ipMode": "VIP", "ports": [{ "port": 80, "protocol": "TCP" }] },
            { "ip": "2001:db8:2::50", "ipMode": "Proxy" }, { "hostname": "lb.example.org" },
        ] } },
    });
    let headless = json!({ "spec": { "clusterIP": "None", "ipFamilies": ["IPv6"], "ports": [{ "port": 80 }],
        "sessionAffinity": "ClientIP" } });
    let external = json!({ "spec": { "type": "ExternalName", "externalName": "db.example.org" } });
    [
        object("v1", "Service", "web", full),
        object("v1", "Service", "headless", headless),
        object("v1", "Service", "elsewhere", external),
    ]
}

fn endpoints() -> [Value; 3] {
    let reference = json!({ "kind": "Pod", "namespace": "default", "name": "web-1", "uid": "0-1",
        "apiVersion": "v1" });
    let labels = json!({ "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io" });
    let ports = json!([{ "name": "http", "port": 8080, "protocol": "TCP", "appProtocol": "http" },
        { "port": 5353, "protocol": "UDP" }]);
    let slice4 = json!({
        "metadata": { "labels": labels }, "addressType": "IPv4", "ports": ports,
        "endpoints": [
            { "addresses": ["10.244.1.10"], "nodeName": "node", "zone": "z1", "hostname": "web-1",
              "conditions": { "ready": true, "serving": true, "terminating": false }, "targetRef": reference,
              "hints": { "forZones": [{ "name": "z1" }, { "name": "z2" }], "forNodes": [{ "name": "node" }] } },
            { "addresses": ["10.244.2.10"],
              "conditions": { "ready": false, "serving": true, "terminating": true } },
            { "addresses": ["10.244.2.11"], "conditions": {} },
        ],
    });
    let slice6 = json!({ "metadata": { "labels": labels }, "addressType": "IPv6", "ports": null,
        "endpoints": [{ "addresses": ["fd00:10:244:1::10"], "nodeName": "node" }] });
    let legacy = json!({ "metadata": { "labels": { "app": "web" } }, "subsets": [{
        "addresses": [{ "ip": "10.244.1.10", "nodeName": "node", "hostname": "web-1", "targetRef": reference }],
        "notReadyAddresses": [{ "ip": "10.244.2.10" }],
        "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }, { "name": "sig", "port": 132,
            "protocol": "SCTP" }] }] });
    [
        object("discovery.k8s.io/v1", "EndpointSlice", "web-4", slice4),
        object("discovery.k8s.io/v1", "EndpointSlice", "web-6", slice6),
        object("v1", "Endpoints", "web", legacy),
    ]
}

fn pods_and_nodes() -> [Value; 4] {
    let pod = json!({
        "metadata": { "labels": { "app": "web" }, "annotations": { "contiv.io/weight": "3" } },
        "spec": { "nodeName": "node", "hostNetwork": true, "containers": [{ "name": "web", "ports": [
            { "name": "web", "containerPort": 8080, "hostPort": 80, "hostIP": "172.31.0.1" },
            { "name": "dns", "containerPort": 5353, "protocol": "UDP" }] }, { "name": "sidecar" }] },
        "status": { "phase": "Running", "hostIP": "172.31.0.1", "podIP": "10.244.1.10",
            "podIPs": [{ "ip": "10.244.1.10" }, { "ip": "fd00:10:244:1::10" }] },
    });
    let pending = json!({ "spec": { "containers": [] }, "status": { "phase": "Pending" } });
    let node = json!({
        "metadata": { "labels": { "topology.kubernetes.io/zone": "z1" } },
        "spec": { "podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:10:244:1::/64"],
            "providerID": "lab://node" },
        "status": {
            "addresses": [{ "type": "InternalIP", "address": "172.31.0.1" },
                { "type": "ExternalIP", "address": "203.0.113.1" }, { "type": "Hostname", "address": "node" },
                { "type": "SomethingNew", "address": "?" }],
            "nodeInfo": { "kernelVersion": "6.12.1", "kubeletVersion": "v1.36.0", "architecture": "amd64" },
        },
    });
    let namespace = json!({ "metadata": { "labels": { "team": "one", "stage": "test" } } });
    [
        object("v1", "Pod", "web-1", pod),
        object("v1", "Pod", "pending", pending),
        object("v1", "Node", "node", node),
        object("v1", "Namespace", "default", namespace),
    ]
}

type Values = BTreeMap<String, Bytes>;

async fn list_values(url: &str) -> Values {
    let url: StoreUrl = url.parse().unwrap();
    let store = contiv_store::open(&url, EtcdAccess::default())
        .await
        .unwrap();
    let snapshot = store.list(ROOT).await.unwrap();
    assert_eq!(snapshot.problems, []);
    snapshot
        .entries
        .into_iter()
        .map(|entry| (entry.key, entry.value))
        .collect()
}

async fn reflect_values(server: &ApiServer) -> Values {
    let store = MemoryStore::new();
    Running::synced(server, store.shared()).await.stop().await;
    entries(&store)
        .await
        .into_iter()
        .map(|(key, entry)| (key, entry.value))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn manifest_api_server_and_reflector_give_equal_values() {
    let folder = tempfile::tempdir().unwrap();
    let server = ApiServer::start().unwrap();
    for (number, object) in objects().into_iter().enumerate() {
        fs::write(
            folder.path().join(format!("{number}.json")),
            object.to_string(),
        )
        .unwrap();
        server.put(object).unwrap();
    }
    let from_folder = list_values(&format!("dir:{}", folder.path().display())).await;
    assert_eq!(from_folder.len(), objects().len());
    for other in [
        list_values(&server.url().unwrap()).await,
        reflect_values(&server).await,
    ] {
        assert!(other.keys().eq(from_folder.keys()));
        for (key, value) in other {
            assert_eq!(
                String::from_utf8_lossy(&value),
                String::from_utf8_lossy(&from_folder[&key]),
                "{key}"
            );
        }
    }
}

/// The stored form of an object, as JSON.
fn stored(values: &Values, keyword: &str, name: &str) -> Value {
    let path = format!("{ROOT}k8s/{keyword}/{name}");
    let found = values
        .iter()
        .find(|(key, _)| **key == path || key.starts_with(&format!("{path}/")));
    let (_, value) = found.unwrap_or_else(|| panic!("{path} is not in {:?}", values.keys()));
    serde_json::from_slice(value).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn reflected_objects_keep_all_fields_of_services() {
    let server = ApiServer::start().unwrap();
    for object in objects() {
        server.put(object).unwrap();
    }
    let values = reflect_values(&server).await;
    for (key, value) in &values {
        let key = Key::parse(key).unwrap().unwrap();
        assert!(Object::decode(&key, value).is_ok(), "{key}");
    }
    let web = stored(&values, "service", "web");
    let expected = json!({
        "ip_families": ["IPv4", "IPv6"], "cluster_ips": ["10.96.0.80", "fd00:10:96::50"],
        "external_ips": ["192.0.2.80", "2001:db8:1::50"], "service_type": "LoadBalancer",
        "session_affinity": "ClientIP", "session_affinity_timeout": 600, "health_check_node_port": 32080,
        "external_traffic_policy": "Local", "internal_traffic_policy": "Cluster",
        "traffic_distribution": "PreferSameNode", "publish_not_ready_addresses": true,
        "load_balancer_class": "example.org/lb", "creation_timestamp": "1767323045",
        "loadbalancer_source_ranges": ["203.0.113.0/24", "2001:db8:9::/48"],
        "load_balancer_ingress": [{ "ip": "198.51.100.80", "ip_mode": "VIP" },
            { "ip": "2001:db8:2::50", "ip_mode": "Proxy" }, { "hostname": "lb.example.org" }],
    });
    assert_contains(&web, &expected);
    assert_eq!(web["annotations"]["contiv.io/balance"], "client-address");
    assert_eq!(
        web["labels"]["service.kubernetes.io/service-proxy-name"],
        "contiv"
    );
    assert_contains(
        &web["port"][0],
        &json!({ "node_port": 30080, "app_protocol": "http" }),
    );
    assert_contains(
        &web["port"][0]["target_port"],
        &json!({ "type": "STRING", "string_val": "web" }),
    );
    let headless = stored(&values, "service", "headless");
    assert_contains(
        &headless,
        &json!({ "ip_families": ["IPv6"], "cluster_ip": "None", "session_affinity_timeout": 10_800 }),
    );

    let slice = stored(&values, "endpointslice", "web-4");
    assert_contains(
        &slice,
        &json!({ "service_name": "web", "address_type": "IPv4" }),
    );
    let [first, second, third] = [0, 1, 2].map(|number| &slice["endpoints"][number]);
    assert_contains(
        first,
        &json!({ "zone": "z1", "node_name": "node", "host_name": "web-1",
        "hints": { "for_zones": ["z1", "z2"], "for_nodes": ["node"] } }),
    );
    assert_eq!(
        second["conditions"],
        json!({ "ready": false, "serving": true, "terminating": true })
    );
    assert_eq!(
        third["conditions"],
        json!({}),
        "absent conditions stay absent"
    );
    assert_eq!(
        slice["ports"][1]["name"], "",
        "an absent name is stored as an empty one"
    );

    let pod = stored(&values, "pod", "web-1");
    assert_contains(
        &pod,
        &json!({ "host_network": true, "phase": "Running", "node_name": "node",
        "ip_addresses": ["10.244.1.10", "fd00:10:244:1::10"] }),
    );
    let node = stored(&values, "node", "node");
    assert_eq!(
        node["pod_cidrs"],
        json!(["10.244.1.0/24", "fd00:10:244:1::/64"])
    );
    assert_eq!(node["labels"]["topology.kubernetes.io/zone"], "z1");
    assert_eq!(node["addresses"].as_array().map(Vec::len), Some(3));
}

fn assert_contains(object: &Value, expected: &Value) {
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(object[name], *value, "{name} of {object}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_fields_do_not_change_stored_values() {
    let (plain, with_unused) = (ApiServer::start().unwrap(), ApiServer::start().unwrap());
    for object in objects() {
        plain.put(object.clone()).unwrap();
        let mut object = object;
        object["metadata"]["managedFields"] =
            json!([{ "manager": "kubelet", "fieldsV1": { "f:spec": {} } }]);
        object["metadata"]["uid"] = "9-9".into();
        object["metadata"]["finalizers"] = json!(["example.org/f"]);
        object["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] =
            "{}".into();
        object["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
        with_unused.put(object).unwrap();
    }
    assert_eq!(
        reflect_values(&with_unused).await,
        reflect_values(&plain).await
    );
}
