//! Liveness of tasks: a probe asks a task, and the task answers when it is polled. A blocked or ended task does not answer.

use std::time::Duration;

use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

/// How long a task may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Probes one task. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LivenessProbe {
    questions: mpsc::Sender<oneshot::Sender<()>>,
}

impl LivenessProbe {
    /// Asks the task. True if it answers within a second.
    pub async fn is_alive(&self) -> bool {
        let exchange = async {
            let (reply, answer) = oneshot::channel();
            self.questions.send(reply).await.is_ok() && answer.await.is_ok()
        };
        timeout(ANSWER_TIMEOUT, exchange).await.unwrap_or(false)
    }
}

/// Answers probes within the probed task.
#[derive(Debug)]
pub(crate) struct LivenessReporter {
    questions: mpsc::Receiver<oneshot::Sender<()>>,
}

impl LivenessReporter {
    /// Runs the future of a task and answers probes whenever it yields.
    pub(crate) async fn report_while<F: Future>(mut self, work: F) -> F::Output {
        tokio::pin!(work);
        loop {
            tokio::select! {
                output = &mut work => return output,
                Some(reply) = self.questions.recv() => {
                    // The prober may have given up.
                    let _ = reply.send(());
                }
            }
        }
    }
}

pub(crate) fn liveness_channel() -> (LivenessProbe, LivenessReporter) {
    let (sender, questions) = mpsc::channel(1);
    (
        LivenessProbe { questions: sender },
        LivenessReporter { questions },
    )
}
