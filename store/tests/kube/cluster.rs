//! Pods, nodes and port-forwards.

use contiv_store::kube::{ClusterError, KubeCluster, Pod};
use contiv_store_testing::Authority;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;

async fn cluster(server: &ApiServer) -> KubeCluster {
    let address = KubeAddress {
        kubeconfig: Some(server.kubeconfig().unwrap()),
        ..KubeAddress::default()
    };
    KubeCluster::open(&address).await.unwrap()
}

fn pod(namespace: &str, name: &str, app: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}},
        "spec": {"nodeName": "n1", "containers": [{"ports": [{"name": "debug", "containerPort": 9999}]}]},
        "status": {"phase": "Running"},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_listed_by_label_and_namespace_in_pages() {
    let server = ApiServer::start().unwrap();
    server.without_cache();
    for number in 0..501 {
        server
            .put(pod("a", &format!("agent-{number:03}"), "agent"))
            .unwrap();
    }
    server.put(pod("b", "agent-501", "agent")).unwrap();
    server.put(pod("b", "web", "web")).unwrap();
    let cluster = cluster(&server).await;
    let pods = cluster.pods(None, "app=agent").await.unwrap();
    assert_eq!((pods.len(), pods[501].name.as_str()), (502, "agent-501"));
    assert_eq!(server.take_requests().len(), 2);
    let pods = cluster.pods(Some("b"), "app=agent").await.unwrap();
    assert_eq!(
        pods.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>(),
        ["agent-501"]
    );
    assert!(
        pods[0].is_running() && pods[0].ports["debug"] == 9999,
        "{pods:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn port_is_forwarded_over_tls_and_with_the_token() {
    let server = ApiServer::start_with_tls(Authority::new().unwrap()).unwrap();
    server.require_token("secret").unwrap();
    server.put(pod("a", "agent", "agent")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let echo = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut from, mut to) = stream.split();
        tokio::io::copy(&mut from, &mut to).await.unwrap();
    });
    let cluster = cluster(&server).await;
    let pods = cluster.pods(None, "app=agent").await.unwrap();
    let mut forward = cluster.forward(&pods[0], port).await.unwrap();
    let sent = vec![7; 1 << 20];
    let (mut from, mut to) = tokio::io::split(&mut forward.stream);
    let mut received = vec![0; sent.len()];
    let (written, read) = tokio::join!(to.write_all(&sent), from.read_exact(&mut received));
    written.unwrap();
    read.unwrap();
    assert!(received == sent, "what comes back is not what was sent");
    drop(forward);
    echo.await.unwrap();
    let exchanges = server.take_exchanges();
    let last = exchanges.last().unwrap();
    assert!(
        last.path
            .ends_with(&format!("/pods/agent/portforward?&ports={port}")),
        "{}",
        last.path
    );
    assert!(
        exchanges
            .iter()
            .all(|exchange| exchange.user_agent.starts_with("contiv/")),
        "{exchanges:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn port_that_refuses_gives_the_kubelets_reason() {
    let server = ApiServer::start().unwrap();
    server.put(pod("a", "agent", "agent")).unwrap();
    let port = 1;
    let cluster = cluster(&server).await;
    let pods = cluster.pods(None, "app=agent").await.unwrap();
    let mut forward = cluster.forward(&pods[0], port).await.unwrap();
    let reason = forward.failure.await.unwrap();
    assert!(
        reason.contains("forwarding port 1 ") && reason.contains("refused"),
        "{reason}"
    );
    assert_eq!(
        forward.stream.read(&mut [0; 16]).await.unwrap(),
        0,
        "the stream ends"
    );
    let gone = Pod {
        name: "gone".to_owned(),
        ..pods[0].clone()
    };
    let error = cluster.forward(&gone, port).await.unwrap_err().to_string();
    assert!(error.contains("pods \"gone\" not found"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_right_is_named() {
    let server = ApiServer::start().unwrap();
    server.put(pod("a", "agent", "agent")).unwrap();
    server.put(node("n1")).unwrap();
    let cluster = cluster(&server).await;
    assert_eq!(cluster.nodes().await.unwrap()[0].name, "n1");
    for resource in ["nodes", "pods/portforward"] {
        server.deny(resource, Some(403));
    }
    let pods = cluster.pods(None, "app=agent").await.unwrap();
    let errors = [
        cluster.nodes().await.unwrap_err(),
        cluster.forward(&pods[0], 1).await.unwrap_err(),
    ];
    for (error, needed) in errors
        .into_iter()
        .zip(["list on nodes", "get and create on pods/portforward"])
    {
        assert!(
            matches!(&error, ClusterError::Forbidden { right, .. } if *right == needed),
            "{error}"
        );
    }
    server.deny("pods", Some(503));
    let error = cluster.pods(None, "app=agent").await.unwrap_err();
    assert!(matches!(error, ClusterError::Unavailable { .. }), "{error}");
}
