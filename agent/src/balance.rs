//! How new connections are spread over backends, counted in the kernel while somebody looks.
//!
//! The first question makes the kernel's table, and with a minute without any it goes: at other times no packet pays for it.

use std::{fmt, sync::Arc, time::Duration};

use contiv_node::{
    balance::{BackendShare, shares},
    flows::FrontendIndex,
};
use contiv_renderer::nftables::{BalanceCounts, BalanceTable};
use jiff::Timestamp;
use serde::Serialize;
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    task::spawn_blocking,
    time::timeout,
};

use crate::drivers::{Request, snapshot};

/// Counting ends when nobody has asked for so long.
const LEASE: Duration = Duration::from_secs(60);
/// How often somebody comes anew that came just as counting ended.
const MAX_STARTS: usize = 3;

/// How new connections are spread.
#[derive(Debug, Serialize)]
pub(crate) struct Balance {
    /// When counting began.
    since: Timestamp,
    /// When the counters were read.
    at: Timestamp,
    /// There are more frontends and backends than the kernel can count: some are missing.
    is_full: bool,
    /// The backends of ports that had new connections since.
    pub(crate) backends: Vec<BackendShare>,
}

type Counted = Result<(Timestamp, BalanceCounts), String>;
type Question = oneshot::Sender<Counted>;
/// Reads the counters. It may block.
type ReadFn = Box<dyn FnMut() -> Result<BalanceCounts, String> + Send>;

/// Counts for those that ask. Clones share the counting.
#[derive(Clone)]
pub(crate) struct BalanceCounter {
    requests: mpsc::Sender<Request>,
    /// Where the counting task receives questions, while it runs.
    task: Arc<Mutex<Option<mpsc::Sender<Question>>>>,
}

impl fmt::Debug for BalanceCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BalanceCounter").finish_non_exhaustive()
    }
}

impl BalanceCounter {
    /// Asks the node for its services through `requests`.
    pub(crate) fn new(requests: mpsc::Sender<Request>) -> Self {
        Self {
            requests,
            task: Arc::default(),
        }
    }

    /// The shares since counting began, which this begins unless somebody asked within the last minute.
    ///
    /// # Errors
    /// When the node has no services yet, or the kernel cannot count; as text.
    pub(crate) async fn read(&self) -> Result<Balance, String> {
        let snapshot = snapshot(&self.requests).await?;
        for _ in 0..MAX_STARTS {
            let (question, answer) = oneshot::channel();
            self.enter(question).await?;
            // Counting may have ended just now.
            let Ok(answer) = answer.await else {
                continue;
            };
            let ((since, counts), at) = (answer?, Timestamp::now());
            let is_full = counts.is_full;
            let share = move || shares(&counts.new_connections, &FrontendIndex::new(snapshot));
            let backends = spawn_blocking(share)
                .await
                .map_err(|error| error.to_string())?;
            return Ok(Balance {
                since,
                at,
                is_full,
                backends,
            });
        }
        Err("counting ended before it began; try again".to_owned())
    }

    /// Hands a question to the task, which is started if it does not run.
    async fn enter(&self, question: Question) -> Result<(), String> {
        let mut task = self.task.lock().await;
        let rejected = match &*task {
            Some(running) => running.send(question).await.err().map(|error| error.0),
            None => Some(question),
        };
        if let Some(question) = rejected {
            let read = spawn_blocking(begin)
                .await
                .map_err(|error| error.to_string())??;
            let (questions, receiver) = mpsc::channel(1);
            tokio::spawn(count(read, Timestamp::now(), receiver));
            let _ = questions.send(question).await;
            *task = Some(questions);
        }
        Ok(())
    }
}

/// Answers questions until there are none for a while, or the counters are gone. With `read` the counting ends.
async fn count(mut read: ReadFn, since: Timestamp, mut questions: mpsc::Receiver<Question>) {
    while let Ok(Some(question)) = timeout(LEASE, questions.recv()).await {
        let reading = spawn_blocking(move || {
            let counts = read();
            (read, counts)
        });
        let Ok((back, counts)) = reading.await else {
            return;
        };
        read = back;
        let is_gone = counts.is_err();
        // Whoever asked may be gone.
        let _ = question.send(counts.map(|counts| (since, counts)));
        if is_gone {
            return;
        }
    }
}

/// Begins to count in the kernel.
fn begin() -> Result<ReadFn, String> {
    let mut table = BalanceTable::begin().map_err(|error| error.to_string())?;
    Ok(Box::new(move || {
        table.read().map_err(|error| error.to_string())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts in `sender`: it is closed when counting ends.
    fn counting(sender: mpsc::Sender<()>) -> mpsc::Sender<Question> {
        let (questions, receiver) = mpsc::channel(1);
        let read = move || match sender.try_send(()) {
            Ok(()) => Ok(BalanceCounts::default()),
            Err(_) => Err("the table is gone".to_owned()),
        };
        tokio::spawn(count(Box::new(read), Timestamp::UNIX_EPOCH, receiver));
        questions
    }

    async fn ask(questions: &mpsc::Sender<Question>) -> Option<Counted> {
        let (question, answer) = oneshot::channel();
        questions.send(question).await.ok()?;
        answer.await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn counting_goes_on_while_somebody_asks_and_ends_a_minute_later() {
        let (sender, mut readings) = mpsc::channel(8);
        let questions = counting(sender);
        for _ in 0..3 {
            assert!(ask(&questions).await.is_some_and(|counted| counted.is_ok()));
            tokio::time::sleep(Duration::from_secs(59)).await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(ask(&questions).await.is_none());
        for _ in 0..3 {
            assert_eq!(readings.recv().await, Some(()));
        }
        assert_eq!(readings.recv().await, None, "nothing is counted any more");
    }

    #[tokio::test(start_paused = true)]
    async fn lost_counters_are_told_once_and_counting_ends() {
        let (sender, readings) = mpsc::channel(1);
        drop(readings);
        let questions = counting(sender);
        let told = ask(&questions).await.map(|counted| counted.unwrap_err());
        assert_eq!(told.as_deref(), Some("the table is gone"));
        assert!(ask(&questions).await.is_none());
    }
}
