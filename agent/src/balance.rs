//! How new connections are spread over backends, counted in the kernel while somebody looks.
//!
//! The first question makes the kernel's table, and with a minute without any it goes: at other times no packet pays for it.

use std::{fmt, sync::Arc, time::Duration};

use contiv_model::ServiceId;
use contiv_node::{
    balance::{BackendShare, shares},
    flows::FrontendIndex,
};
use contiv_renderer::nftables::{BalanceCounts, BalanceTable};
use jiff::Timestamp;
use serde::Serialize;
use tokio::{
    sync::{Mutex, Semaphore, mpsc, oneshot},
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

/// A question for the counts.
struct Question {
    /// Begin to count anew.
    restarts: bool,
    answer: oneshot::Sender<Counted>,
}

/// Reads the counters. It may block.
type ReadFn = Box<dyn FnMut() -> Result<BalanceCounts, String> + Send>;
/// Begins to count. It may block.
type BeginFn = fn() -> Result<ReadFn, String>;

/// Counts for those that ask. Clones share the counting.
#[derive(Clone)]
pub(crate) struct BalanceCounter {
    requests: mpsc::Sender<Request>,
    /// Where the counting task receives questions, while it runs.
    task: Arc<Mutex<Option<mpsc::Sender<Question>>>>,
    /// The shares are made for one caller at a time.
    permit: Arc<Semaphore>,
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
            permit: Arc::new(Semaphore::new(1)),
        }
    }

    /// The shares of services that are wanted since counting began, which this begins unless somebody asked within the last minute, or if
    /// it `restarts`.
    ///
    /// # Errors
    /// When the node has no services yet, or the kernel cannot count; as text.
    pub(crate) async fn read(
        &self,
        restarts: bool,
        is_wanted: impl Fn(&ServiceId) -> bool + Send + 'static,
    ) -> Result<Balance, String> {
        let _permit = self
            .permit
            .acquire()
            .await
            .map_err(|error| error.to_string())?;
        for _ in 0..MAX_STARTS {
            let (answer, counted) = oneshot::channel();
            self.enter(Question { restarts, answer }).await?;
            // Counting may have ended just now.
            let Ok(counted) = counted.await else {
                continue;
            };
            let ((since, counts), at) = (counted?, Timestamp::now());
            let is_full = counts.is_full;
            let snapshot = snapshot(&self.requests).await?;
            let share = move || {
                let index = FrontendIndex::new(snapshot);
                shares(&counts.new_connections, &index, is_wanted)
            };
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
            let read = in_thread(begin).await?;
            let (questions, receiver) = mpsc::channel(1);
            tokio::spawn(count(begin, read, Timestamp::now(), receiver));
            let _ = questions.send(question).await;
            *task = Some(questions);
        }
        Ok(())
    }
}

async fn in_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    spawn_blocking(work)
        .await
        .map_err(|error| error.to_string())?
}

/// Answers questions until there are none for a while, or the counters are gone. With `read` the counting ends.
async fn count(
    begin: BeginFn,
    mut read: ReadFn,
    mut since: Timestamp,
    mut questions: mpsc::Receiver<Question>,
) {
    while let Ok(Some(Question { restarts, answer })) = timeout(LEASE, questions.recv()).await {
        let work = move || {
            let mut read = if restarts {
                // The kernel lets nobody replace a table that another socket owns.
                drop(read);
                begin()?
            } else {
                read
            };
            let counts = read()?;
            Ok((read, counts))
        };
        let counts = in_thread(work).await;
        if restarts {
            since = Timestamp::now();
        }
        // Whoever asked may be gone.
        match counts {
            Ok((back, counts)) => {
                read = back;
                let _ = answer.send(Ok((since, counts)));
            }
            Err(error) => {
                let _ = answer.send(Err(error));
                return;
            }
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
            Ok(()) => Ok(BalanceCounts {
                is_full: true,
                ..BalanceCounts::default()
            }),
            Err(_) => Err("the table is gone".to_owned()),
        };
        let anew: BeginFn = || Ok(Box::new(|| Ok(BalanceCounts::default())));
        let since = Timestamp::UNIX_EPOCH;
        tokio::spawn(count(anew, Box::new(read), since, receiver));
        questions
    }

    async fn ask(questions: &mpsc::Sender<Question>, restarts: bool) -> Option<Counted> {
        let (answer, counted) = oneshot::channel();
        questions.send(Question { restarts, answer }).await.ok()?;
        counted.await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn counting_goes_on_while_somebody_asks_and_ends_a_minute_later() {
        let (sender, mut readings) = mpsc::channel(8);
        let questions = counting(sender);
        for _ in 0..3 {
            let counted = ask(&questions, false).await;
            assert!(counted.is_some_and(|counted| counted.is_ok()));
            tokio::time::sleep(Duration::from_secs(59)).await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(ask(&questions, false).await.is_none());
        for _ in 0..3 {
            assert_eq!(readings.recv().await, Some(()));
        }
        assert_eq!(readings.recv().await, None, "nothing is counted any more");
    }

    #[tokio::test(start_paused = true)]
    async fn counting_begins_anew_for_those_that_want_it() {
        let (sender, mut readings) = mpsc::channel(8);
        let questions = counting(sender);
        for (restarts, expected) in [(false, true), (true, false), (false, false)] {
            let (since, counts) = ask(&questions, restarts).await.unwrap().unwrap();
            assert_eq!(counts.is_full, expected, "whose counts these are");
            assert_eq!(since == Timestamp::UNIX_EPOCH, expected);
        }
        assert_eq!(readings.recv().await, Some(()));
        assert_eq!(readings.recv().await, None, "the former counters are gone");
    }

    #[tokio::test(start_paused = true)]
    async fn lost_counters_are_told_once_and_counting_ends() {
        let (sender, readings) = mpsc::channel(1);
        drop(readings);
        let questions = counting(sender);
        let told = ask(&questions, false)
            .await
            .map(|counted| counted.unwrap_err());
        assert_eq!(told.as_deref(), Some("the table is gone"));
        assert!(ask(&questions, false).await.is_none());
    }
}
