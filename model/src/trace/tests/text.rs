//! The text and JSON forms.

use super::*;
use crate::TrafficPolicy::Local;

#[test]
fn delivery_reads_like_explanation() {
    let mut service = web(vec![
        Backend {
            weight: 3,
            ..local_backend()
        },
        remote_backend(),
    ]);
    service.session_affinity_timeout = 600;
    let trace = traced(&snapshot_of(vec![service]), "10.244.1.10", CLUSTER_IP);
    assert_eq!(
        trace.to_string(),
        "\
flow      10.244.1.10 to 10.96.0.1:80/tcp
client    a pod of this node
service   shop/web, port 80/tcp (http), by its cluster IP
verdict   SERVED by one of 2 backends
why       internal policy Cluster: backends anywhere; all that are ready
backend   10.244.1.10:8080   75.0 %, weight 3, on this node, ready
backend   10.244.2.10:8080   25.0 %, weight 1, elsewhere, ready
source    kept: a local pod connects to a cluster IP
          but hidden if 10.244.1.10:8080 is chosen: the client is that backend
affinity  a client keeps its backend until 600 s after its last new connection
"
    );
}

#[test]
fn drop_names_the_policy_and_a_remedy() {
    let service = ContivService {
        external_policy: Local,
        ..web(vec![remote_backend()])
    };
    let text = traced(&snapshot_of(vec![service]), EXTERNAL, NODE_PORT).to_string();
    for part in [
        "by its node port",
        "DROPPED",
        "external policy Local",
        "use another node",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
}

#[test]
fn json_has_verdict_as_its_key() {
    let served = traced(
        &snapshot_of(vec![web(vec![local_backend()])]),
        POD,
        NODE_PORT,
    );
    let json = serde_json::to_value(served).unwrap();
    assert_eq!(json["flow"]["protocol"], "TCP");
    assert_eq!(json["client"], "local-pod");
    assert_eq!(json["hit"]["kind"], "node-port");
    let delivery = &json["verdict"]["backends"];
    assert_eq!(delivery["rule"], "external-cluster");
    assert_eq!(delivery["masquerade"], "hidden-by-external-cluster");
    assert_eq!(delivery["candidates"][0]["share"], 100.0);
    let rejected = traced(&snapshot_of(vec![web(vec![])]), POD, NODE_PORT);
    assert_eq!(
        serde_json::to_value(rejected).unwrap()["verdict"]["rejected"],
        "no-backends"
    );
}
