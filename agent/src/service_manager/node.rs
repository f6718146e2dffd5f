//! The state of the agent, as its node answers.

use std::time::Instant;

use contiv_node::RendererView;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::{ProcessStatus, STATUS_QUERY_INTERVAL, status_line};
use crate::drivers::{Question, Request};

/// Asks the node; none if it has ended.
pub(crate) async fn node_status(requests: mpsc::Sender<Request>) -> Option<ProcessStatus> {
    let (question, answer) = Question::new(|core| (core.status(), core.renderers(Instant::now())));
    let exchange = async {
        requests.send(Request::Ask(question)).await.ok()?;
        answer.await.ok()
    };
    let Ok(answer) = timeout(STATUS_QUERY_INTERVAL, exchange).await else {
        return Some(ProcessStatus::silent("the node does not answer".to_owned()));
    };
    let (status, renderers) = answer?;
    let is_at_rest = |renderer: &RendererView| {
        renderer.pending == "nothing" && !matches!(renderer.state, "busy" | "slow")
    };
    Some(ProcessStatus {
        alive: true,
        ready: status.ready,
        at_rest: renderers.iter().all(is_at_rest),
        status: status_line::agent(&status, &renderers),
    })
}

/// Comes to its end when the node has become ready; never if it ends before.
pub(crate) async fn readiness_of_node(requests: mpsc::Sender<Request>) {
    let (reply, ready) = oneshot::channel();
    if requests.send(Request::AwaitReady(reply)).await.is_err() || ready.await.is_err() {
        std::future::pending::<()>().await;
    }
}
