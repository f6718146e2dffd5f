//! Leases: who may run the controllers of which there must be one.

pub mod election;

use std::fmt;

use tokio::sync::watch;

use crate::writer::Fence;

/// Whether this process may run singletons, now and from now on. Cheap to clone.
///
/// Where one comes from: [`Lease::always_leader`] for what runs on each node, an [`Election`](election::Election) among
/// processes, or [`Lease::manual`] for tests.
#[derive(Clone)]
pub struct Lease {
    term: watch::Receiver<LeaseTerm>,
}

/// Whether a lease is held, and since when: the same lease lost and won again is another term.
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

    /// A lease that is held when its holder says so.
    ///
    /// ```
    /// use contiv_controller::lease::Lease;
    ///
    /// let (holder, lease) = Lease::manual();
    /// assert!(!lease.held());
    /// holder.grant();
    /// assert!(lease.held());
    /// holder.revoke();
    /// assert!(!lease.held());
    /// ```
    pub fn manual() -> (LeaseHolder, Self) {
        let (sender, term) = watch::channel(LeaseTerm::default());
        (LeaseHolder { term: sender }, Self { term })
    }

    /// Whether it is held now.
    pub fn held(&self) -> bool {
        self.term.borrow().is_held
    }

    /// What proves to the store that it is held; none if it is not, or needs no proof.
    pub fn fence(&self) -> Option<Fence> {
        self.term.borrow().fence.clone()
    }

    /// Returns when it was won or lost since the last call. No change is missed, but several may be one. Never returns
    /// if nothing can change any more.
    pub async fn changed(&mut self) {
        if self.term.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns as soon as it is held.
    pub(crate) async fn acquired(&mut self) -> LeaseTerm {
        self.until(|term| term.is_held).await
    }

    /// Returns as soon as this term is over.
    pub(crate) async fn is_over(&mut self, mine: &LeaseTerm) {
        self.until(|term| term != mine).await;
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

/// Says whether a lease is held.
#[derive(Debug)]
pub struct LeaseHolder {
    term: watch::Sender<LeaseTerm>,
}

impl LeaseHolder {
    /// The lease is held from now on. If it was already, this is a new term.
    pub fn grant(&self) {
        self.begin(None);
    }

    /// The lease is held from now on, as this proves.
    pub fn grant_with(&self, fence: Fence) {
        self.begin(Some(fence));
    }

    /// The lease is not held from now on.
    pub fn revoke(&self) {
        self.term.send_if_modified(|term| {
            term.fence = None;
            std::mem::take(&mut term.is_held)
        });
    }

    fn begin(&self, fence: Option<Fence>) {
        self.term.send_modify(|term| *term = LeaseTerm { number: term.number + 1, is_held: true, fence });
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
        assert!(lease.held() && lease.fence().is_none());
        assert!(lease.acquired().await.is_held);
        assert!(timeout(Duration::from_secs(1), lease.changed()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn lease_lost_and_won_between_two_looks_is_another_term() {
        let (holder, mut lease) = Lease::manual();
        holder.grant();
        let first = lease.acquired().await;
        assert!(timeout(Duration::from_secs(1), lease.is_over(&first)).await.is_err());
        holder.revoke();
        holder.grant();
        lease.is_over(&first).await;
        assert_ne!(lease.acquired().await, first);
    }

    #[tokio::test(start_paused = true)]
    async fn taking_what_is_not_held_is_no_change() {
        let (holder, mut lease) = Lease::manual();
        holder.revoke();
        assert!(timeout(Duration::from_secs(1), lease.changed()).await.is_err());
        holder.grant();
        lease.changed().await;
        assert!(lease.held());
    }
}
