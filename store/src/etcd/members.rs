//! Chooses the member for a request.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use etcd_client::GetOptions;
use futures::{FutureExt, future::BoxFuture};
use rand::RngExt;

use super::{
    access::EtcdAccess, failure::Failure, member::Member, patience::Patience, session::Session,
};
use crate::StoreError;

/// The members of a cluster, and the preferred one, which answered last.
pub(super) struct Members {
    /// At least one.
    members: Vec<Member>,
    /// Any value is valid, so relaxed ordering is enough.
    preferred: AtomicUsize,
}

impl Members {
    /// Nothing is sent here.
    ///
    /// # Errors
    /// When there is no endpoint.
    pub(super) fn new(endpoints: &[String], access: EtcdAccess) -> Result<Self, StoreError> {
        if endpoints.is_empty() {
            let reason = "there is no endpoint; name at least one HOST:PORT".to_owned();
            return Err(StoreError::Refused {
                action: "connect".to_owned(),
                reason,
            });
        }
        let (access, patience) = (Arc::new(access), Patience::of_one_of(endpoints.len()));
        let members = endpoints
            .iter()
            .map(|endpoint| Member::new(endpoint.clone(), Arc::clone(&access), patience))
            .collect();
        // Many agents with the same configuration are spread over the members.
        let preferred = AtomicUsize::new(rand::rng().random_range(0..endpoints.len()));
        Ok(Self { members, preferred })
    }

    /// Sends the request to the member that answered last, then to the others. Members whose connection has failed come last.
    ///
    /// # Errors
    /// The error of the first member that could be reached; or, if none can, why each of them cannot.
    pub(super) async fn read<'r, T>(
        &self,
        request: impl Fn(Session) -> BoxFuture<'r, Result<T, Failure>>,
    ) -> Result<T, StoreError> {
        Ok(self.read_from(request).await?.1)
    }

    /// As [`Members::read`], with the member that answered.
    async fn read_from<'r, T>(
        &self,
        request: impl Fn(Session) -> BoxFuture<'r, Result<T, Failure>>,
    ) -> Result<(&Member, T), StoreError> {
        let broken: Vec<bool> = self.members.iter().map(Member::is_broken).collect();
        let mut failures = Vec::new();
        for position in order(self.preferred.load(Ordering::Relaxed), &broken) {
            let member = &self.members[position];
            match member.call(&request).await {
                Err(StoreError::Unavailable { endpoint, reason }) => {
                    failures.push((endpoint, reason));
                }
                answer => {
                    self.preferred.store(position, Ordering::Relaxed);
                    return Ok((member, answer?));
                }
            }
        }
        Err(all_failed(failures))
    }

    /// A member that answers. A write goes to one member only: if the answer is lost it is unknown whether it was done, so it
    /// must not be sent to the next one; hence a dead member is avoided.
    pub(super) async fn reachable(&self) -> Result<&Member, StoreError> {
        if let [only] = self.members.as_slice() {
            return Ok(only);
        }
        let probe =
            |session: Session| async move { session.probe(GetOptions::new()).await }.boxed();
        Ok(self.read_from(probe).await?.0)
    }
}

/// The order of requests: the preferred member, then those after it; broken ones last, and at the very end the preferred one if
/// it is broken, because it has just failed.
fn order(preferred: usize, broken: &[bool]) -> Vec<usize> {
    let first = if broken[preferred] {
        preferred + 1
    } else {
        preferred
    };
    let mut order: Vec<usize> = (first..broken.len()).chain(0..first).collect();
    order.sort_by_key(|position| broken[*position]);
    order
}

fn all_failed(mut failures: Vec<(String, String)>) -> StoreError {
    if failures.len() == 1
        && let Some((endpoint, reason)) = failures.pop()
    {
        return StoreError::Unavailable { endpoint, reason };
    }
    let reasons: Vec<_> = failures
        .iter()
        .map(|(endpoint, reason)| format!("{endpoint}: {reason}"))
        .collect();
    let endpoints: Vec<_> = failures.into_iter().map(|(endpoint, _)| endpoint).collect();
    StoreError::Unavailable {
        endpoint: endpoints.join(","),
        reason: reasons.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_members_are_tried_last() {
        assert_eq!(order(1, &[false; 3]), [1, 2, 0]);
        assert_eq!(order(1, &[false, false, true]), [1, 0, 2]);
        assert_eq!(order(1, &[false, true, true]), [0, 2, 1]);
        for (preferred, expected) in [(0, [1, 2, 0]), (1, [2, 0, 1]), (2, [0, 1, 2])] {
            assert_eq!(order(preferred, &[true; 3]), expected);
        }
        assert_eq!(order(0, &[true]), [0]);
    }
}
