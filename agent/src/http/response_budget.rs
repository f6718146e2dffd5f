//! Limits the memory of answers that clients request but do not read.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes, HttpBody, to_bytes},
    response::{IntoResponse, Response},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::{api::ANSWER_LIMIT, error::ApiError};

/// How many potentially large answers are made concurrently. Further ones wait.
const MAX_CONCURRENT: usize = 4;
/// How long they wait: no longer than for the node.
const QUEUE_TIMEOUT: Duration = ANSWER_LIMIT;
/// Answers up to this size are not counted: there are no more of them than connections, and probes need them.
const UNCOUNTED_BYTES: usize = 256 << 10;
/// The unit in which larger ones are counted.
const UNIT_BYTES: usize = 64 << 10;
/// The limit of all unread answers together, unless it is a single one.
const MAX_UNREAD_BYTES: usize = 64 << 20;

/// The budget that answers share.
#[derive(Debug, Clone)]
pub(super) struct ResponseBudget {
    making: Arc<Semaphore>,
    unread: Arc<Semaphore>,
}

impl ResponseBudget {
    pub(super) fn new() -> Self {
        Self {
            making: Arc::new(Semaphore::new(MAX_CONCURRENT)),
            unread: Arc::new(Semaphore::new(MAX_UNREAD_BYTES / UNIT_BYTES)),
        }
    }

    /// Makes a potentially large answer, when a slot is free.
    pub(super) async fn make(&self, answer: impl Future<Output = Response>) -> Response {
        // The semaphore is never closed.
        let Ok(Ok(_permit)) = timeout(QUEUE_TIMEOUT, self.making.acquire()).await else {
            return ApiError::TooManyRequests.into_response();
        };
        self.hold(answer.await).await
    }

    /// Reserves memory for an answer until it has been read.
    async fn hold(&self, answer: Response) -> Response {
        let size = answer.body().size_hint().lower();
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if size <= UNCOUNTED_BYTES {
            return answer;
        }
        let units = u32::try_from(size.min(MAX_UNREAD_BYTES) / UNIT_BYTES).unwrap_or(u32::MAX);
        let Ok(permit) = Arc::clone(&self.unread).try_acquire_many_owned(units) else {
            return ApiError::TooManyUnread.into_response();
        };
        let (head, body) = answer.into_parts();
        match to_bytes(body, usize::MAX).await {
            Ok(bytes) => Response::from_parts(
                head,
                Body::from(Bytes::from_owner(BudgetedResponse {
                    bytes,
                    _permit: permit,
                })),
            ),
            Err(error) => ApiError::NoAnswer(error.to_string()).into_response(),
        }
    }
}

/// An answer with its reservation, which lasts until everything is sent.
struct BudgetedResponse {
    bytes: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for BudgetedResponse {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;

    fn of_size(size: usize) -> Response {
        "x".repeat(size).into_response()
    }

    #[tokio::test]
    async fn unread_large_responses_are_bounded_and_small_ones_are_not() {
        let budget = ResponseBudget::new();
        let size = MAX_UNREAD_BYTES / 8;
        let mut unread = Vec::new();
        for number in 0..20 {
            let answer = budget.make(async { of_size(size) }).await;
            assert_eq!(answer.status().is_success(), number < 8, "{number}");
            unread.push(answer);
        }
        assert!(
            budget
                .make(async { of_size(UNCOUNTED_BYTES) })
                .await
                .status()
                .is_success()
        );
        // One is read, and one is abandoned.
        let read = unread.remove(0);
        assert_eq!(
            read.body().size_hint().exact(),
            Some(size as u64),
            "its length is said"
        );
        assert_eq!(
            to_bytes(read.into_body(), usize::MAX).await.unwrap().len(),
            size
        );
        drop(unread.remove(0));
        for expected in [true, true, false] {
            let answer = budget.make(async { of_size(size) }).await;
            assert_eq!(answer.status().is_success(), expected);
            unread.push(answer);
        }
        unread.clear();
        let alone = budget.make(async { of_size(2 * MAX_UNREAD_BYTES) }).await;
        assert!(
            alone.status().is_success(),
            "larger than the whole budget, but alone"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_responses_are_limited_and_waiting_times_out() {
        let (budget, making, most) = (
            ResponseBudget::new(),
            AtomicUsize::new(0),
            AtomicUsize::new(0),
        );
        let counted = |time: Duration| {
            let (making, most) = (&making, &most);
            budget.make(async move {
                most.fetch_max(
                    making.fetch_add(1, Ordering::Relaxed) + 1,
                    Ordering::Relaxed,
                );
                tokio::time::sleep(time).await;
                making.fetch_sub(1, Ordering::Relaxed);
                of_size(1)
            })
        };
        let answers = join_all((0..30).map(|_| counted(Duration::from_millis(100)))).await;
        assert!(answers.iter().all(|answer| answer.status().is_success()));
        let slow = join_all((0..=MAX_CONCURRENT).map(|_| counted(2 * QUEUE_TIMEOUT))).await;
        assert_eq!(
            slow.iter()
                .filter(|answer| answer.status().is_success())
                .count(),
            MAX_CONCURRENT
        );
        assert_eq!(most.into_inner(), MAX_CONCURRENT);
    }
}
