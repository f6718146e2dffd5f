//! The state of the agent, as its node answers.

use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::{INTERVAL, ProcessStatus, words};
use crate::node::{Query, RendererView, Reply, Request};

/// Asks the node; none if it has ended.
pub(crate) async fn node_status(requests: mpsc::Sender<Request>) -> Option<ProcessStatus> {
    let questions = async {
        let status = question(&requests, Query::Status).await?;
        Some((status, question(&requests, Query::Renderers).await?))
    };
    let Ok(answer) = timeout(INTERVAL, questions).await else {
        return Some(ProcessStatus::silent("the node does not answer".to_owned()));
    };
    let (status, renderers) = answer?;
    let is_at_rest =
        |renderer: &RendererView| renderer.pending == "nothing" && !matches!(renderer.state, "busy" | "slow");
    Some(ProcessStatus {
        alive: true,
        ready: status.ready,
        at_rest: renderers.iter().all(is_at_rest),
        status: words::agent(&status, &renderers),
    })
}

/// Comes to its end when the node has become ready; never if it ends before.
pub(crate) async fn readiness_of_node(requests: mpsc::Sender<Request>) {
    if question(&requests, Query::Ready).await.is_none() {
        std::future::pending::<()>().await;
    }
}

async fn question<T>(requests: &mpsc::Sender<Request>, wrap: impl FnOnce(Reply<T>) -> Query) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    requests.send(Request::Query(wrap(reply))).await.ok()?;
    answer.await.ok()
}
