//! Leases that decide which process runs the singleton controllers.

pub mod election;

use std::fmt;

use tokio::sync::watch;

use crate::writer::Fence;

/// Whether this process may run singletons, now and in the future. Cheap to clone.
///
/// A lease comes from [`Lease::always_leader`] for controllers that run on each node, from an [`Election`](election::Election)
/// among processes, or from [`Lease::manual`] in tests.
#[derive(Clone)]
pub struct Lease {
    term: watch::Receiver<LeaseTerm>,
}

/// Whether a lease is held and in which term: a lease that is lost and won again has a new term.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LeaseTerm {
    /// How often the lease was won so far.
    number: u64,
    is_held: bool,
    pub(crate) fence: Option<Fence>,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lease").field(&*self.term.borrow()).finish()
    }
}

impl Lease {
    /// A lease that is always held.
    pub fn always_leader() -> Self {
        let (holder, lease) = Self::manual();
        holder.grant();
        lease
    }

    /// A lease that the returned holder grants and revokes.
    ///
    /// ```
    /// use contiv_controller::lease::Lease;
    ///
    /// let (holder, lease) = Lease::manual();
    /// assert!(!lease.is_held());
    /// holder.grant();
    /// assert!(lease.is_held());
    /// holder.revoke();
    /// assert!(!lease.is_held());
    /// ```
    pub fn manual() -> (LeaseHolder, Self) {
        let (sender, term) = watch::channel(LeaseTerm::default());
        (LeaseHolder { term: sender }, Self { term })
    }

    /// Whether the lease is held now.
    pub fn is_held(&self) -> bool {
        self.term.borrow().is_held
    }

    /// The proof for the store that the lease is held; none if it is not held or needs no proof.
    #[cfg(test)]
    pub(crate) fn fence(&self) -> Option<Fence> {
        self.term.borrow().fence.clone()
    }

    /// Waits until the lease was won or lost since the last call. No change is missed, but several may be reported as one.
    /// Never returns if the state can no longer change.
    pub async fn changed(&mut self) {
        if self.term.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the lease is held.
    pub(crate) async fn acquired(&mut self) -> LeaseTerm {
        self.until(|term| term.is_held).await
    }

    /// Waits until this term is over.
    pub(crate) async fn until_over(&mut self, term: &LeaseTerm) {
        self.until(|current| current != term).await;
    }

    async fn until(&mut self, is_reached: impl Fn(&LeaseTerm) -> bool) -> LeaseTerm {
        loop {
            let term = self.term.borrow_and_update().clone();
            if is_reached(&term) {
                return term;
            }
            self.changed().await;
        }
    }
}

/// Grants and revokes a lease.
#[derive(Debug)]
pub struct LeaseHolder {
    term: watch::Sender<LeaseTerm>,
}

impl LeaseHolder {
    /// Grants the lease. If it was already held, a new term begins.
    pub fn grant(&self) {
        self.begin(None);
    }

    /// Grants the lease with a proof for the store.
    pub fn grant_with(&self, fence: Fence) {
        self.begin(Some(fence));
    }

    /// Revokes the lease.
    pub fn revoke(&self) {
        self.term.send_if_modified(|term| {
            term.fence = None;
            std::mem::take(&mut term.is_held)
        });
    }

    fn begin(&self, fence: Option<Fence>) {
        self.term.send_modify(|term| {
            *term = LeaseTerm {
                number: term.number + 1,
                is_held: true,
                fence,
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn always_leader_lease_is_held_and_never_changes() {
        let mut lease = Lease::always_leader();
        assert!(lease.is_held() && lease.fence().is_none());
        assert!(lease.acquired().await.is_held);
        assert!(
            timeout(Duration::from_secs(1), lease.changed())
                .await
                .is_err()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn lease_lost_and_won_between_two_reads_is_another_term() {
        let (holder, mut lease) = Lease::manual();
        holder.grant();
        let first = lease.acquired().await;
        assert!(
            timeout(Duration::from_secs(1), lease.until_over(&first))
                .await
                .is_err()
        );
        holder.revoke();
        holder.grant();
        lease.until_over(&first).await;
        assert_ne!(lease.acquired().await, first);
    }

    #[tokio::test(start_paused = true)]
    async fn revoking_a_lease_that_is_not_held_is_no_change() {
        let (holder, mut lease) = Lease::manual();
        holder.revoke();
        assert!(
            timeout(Duration::from_secs(1), lease.changed())
                .await
                .is_err()
        );
        holder.grant();
        lease.changed().await;
        assert!(lease.is_held());
    }
}
