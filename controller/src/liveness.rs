//! Whether a task still turns: it is asked, and answers by its own turn. One that is blocked, or has ended, does not.

use std::time::Duration;

use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

/// How long a task may take to answer. Its turn is short.
const ANSWER: Duration = Duration::from_secs(1);

/// Asks one task. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LivenessProbe {
    questions: mpsc::Sender<oneshot::Sender<()>>,
}

impl LivenessProbe {
    /// Whether the task answered within a second.
    pub async fn is_alive(&self) -> bool {
        let asked = async {
            let (reply, answer) = oneshot::channel();
            self.questions.send(reply).await.is_ok() && answer.await.is_ok()
        };
        timeout(ANSWER, asked).await.unwrap_or(false)
    }
}

/// Answers within the task that is asked.
#[derive(Debug)]
pub(crate) struct LivenessReporter {
    questions: mpsc::Receiver<oneshot::Sender<()>>,
}

impl LivenessReporter {
    /// Does the work of a task, and answers whenever it lets go of its thread.
    pub(crate) async fn report_while<F: Future>(mut self, work: F) -> F::Output {
        tokio::pin!(work);
        loop {
            tokio::select! {
                output = &mut work => return output,
                Some(reply) = self.questions.recv() => {
                    // Who asked may have given up.
                    let _ = reply.send(());
                }
            }
        }
    }
}

pub(crate) fn liveness_channel() -> (LivenessProbe, LivenessReporter) {
    let (sender, questions) = mpsc::channel(1);
    (LivenessProbe { questions: sender }, LivenessReporter { questions })
}
