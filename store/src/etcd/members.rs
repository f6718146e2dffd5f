//! Which member gets a request.

use std::sync::atomic::{AtomicUsize, Ordering};

use etcd_client::GetOptions;
use futures::{FutureExt, future::BoxFuture};
use rand::Rng;

use super::member::Member;
use crate::StoreError;

/// The members of a cluster, and the one that answered last.
pub(super) struct Members {
    /// At least one.
    members: Vec<Member>,
    /// Any value will do, so no order with other memory is needed.
    preferred: AtomicUsize,
}

impl Members {
    pub(super) async fn connect(endpoints: &[String]) -> Result<Self, StoreError> {
        let mut members = Vec::with_capacity(endpoints.len());
        for endpoint in endpoints {
            members.push(Member::connect(endpoint).await?);
        }
        if members.is_empty() {
            let reason = "there is no endpoint; name at least one HOST:PORT".to_owned();
            return Err(StoreError::Refused { action: "connect".to_owned(), reason });
        }
        // Many agents with one configuration spread over the members.
        let preferred = AtomicUsize::new(rand::rng().random_range(0..members.len()));
        Ok(Self { members, preferred })
    }

    /// Asks the member that answered last, and the next when that one is of no use.
    ///
    /// # Errors
    /// What the first member that could be reached says; or, when none can, why each of them cannot.
    pub(super) async fn read<'a, T>(
        &'a self,
        request: impl Fn(&'a Member) -> BoxFuture<'a, Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let first = self.preferred.load(Ordering::Relaxed);
        let mut failures = Vec::new();
        for position in (first..self.members.len()).chain(0..first) {
            match request(&self.members[position]).await {
                Err(StoreError::Unavailable { endpoint, reason }) => failures.push((endpoint, reason)),
                answer => {
                    self.preferred.store(position, Ordering::Relaxed);
                    return answer;
                }
            }
        }
        Err(all_failed(failures))
    }

    /// A member that answers. A write goes to one member only: when the answer is lost nobody knows whether it was
    /// done, so it must not be sent to the next; and so it should not be sent to one that is known to be dead.
    pub(super) async fn reachable(&self) -> Result<&Member, StoreError> {
        if let [only] = self.members.as_slice() {
            return Ok(only);
        }
        self.read(|member| {
            async move {
                let mut kv = member.kv();
                let options = GetOptions::new().with_count_only();
                member.request("read", kv.get("/", Some(options))).await?;
                Ok(member)
            }
            .boxed()
        })
        .await
    }
}

fn all_failed(mut failures: Vec<(String, String)>) -> StoreError {
    if failures.len() == 1
        && let Some((endpoint, reason)) = failures.pop()
    {
        return StoreError::Unavailable { endpoint, reason };
    }
    let reasons: Vec<_> = failures.iter().map(|(endpoint, reason)| format!("{endpoint}: {reason}")).collect();
    let endpoints: Vec<_> = failures.into_iter().map(|(endpoint, _)| endpoint).collect();
    StoreError::Unavailable { endpoint: endpoints.join(","), reason: reasons.join("; ") }
}
