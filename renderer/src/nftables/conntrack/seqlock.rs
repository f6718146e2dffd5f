//! A sequence lock that keeps programming and the search for stale flows apart, without making programming wait.
//!
//! A search that finds a flow to a backend that is being programmed, and that it does not know yet, would delete it as
//! stale. So each side first marks its own begin and then reads the mark of the other side: at least one of the two sees that
//! they overlap. Programming that sees a search announces its services; a search that sees programming waits for the end of
//! just that one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// Most changes are programmed within this time.
const SPIN_INTERVAL: Duration = Duration::from_micros(200);

/// The state that both sides share.
#[derive(Debug, Default)]
pub(super) struct ProgrammingSeqlock {
    /// How often programming has begun or ended: odd while it runs.
    programming: AtomicUsize,
    searching: AtomicBool,
}

/// A guard: programming runs as long as this lives.
#[derive(Debug)]
#[must_use]
pub(crate) struct Programming(Arc<ProgrammingSeqlock>);

impl ProgrammingSeqlock {
    /// Begins programming; only one runs at a time. True if a search is running, which must get the new services.
    pub(super) fn program(self: &Arc<Self>) -> (Programming, bool) {
        // Sequentially consistent, like everything here: otherwise each side could miss that the other has begun.
        self.programming.fetch_add(1, Ordering::SeqCst);
        (
            Programming(Arc::clone(self)),
            self.searching.load(Ordering::SeqCst),
        )
    }

    /// Runs a search after the current programming has ended. Programming that begins later is announced.
    pub(super) fn search<T>(&self, search: impl FnOnce() -> T) -> T {
        self.searching.store(true, Ordering::SeqCst);
        let now = self.programming.load(Ordering::SeqCst);
        while now % 2 == 1 && self.programming.load(Ordering::SeqCst) == now {
            thread::sleep(SPIN_INTERVAL);
        }
        let result = search();
        self.searching.store(false, Ordering::SeqCst);
        result
    }
}

impl Drop for Programming {
    fn drop(&mut self) {
        self.0.programming.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};

    use super::*;

    #[test]
    fn search_waits_for_running_programming_but_not_for_later() {
        let seqlock = Arc::new(ProgrammingSeqlock::default());
        let (programming, is_searching) = seqlock.program();
        assert!(!is_searching, "nothing has to be announced");
        let (begun, begins) = channel();
        let (end, ended) = channel::<()>();
        let search = thread::spawn({
            let seqlock = Arc::clone(&seqlock);
            move || {
                seqlock.search(|| {
                    begun.send(()).unwrap();
                    let _ = ended.recv();
                });
            }
        });
        assert_eq!(
            begins.recv_timeout(20 * SPIN_INTERVAL),
            Err(RecvTimeoutError::Timeout)
        );
        drop(programming);
        begins.recv().unwrap();
        for _ in 0..2 {
            assert!(
                seqlock.program().1,
                "what comes during the search is announced"
            );
        }
        drop(end);
        search.join().unwrap();
        assert!(!seqlock.program().1, "the search is over");
    }

    #[test]
    fn programming_without_pause_holds_no_search_up() {
        let seqlock = Arc::new(ProgrammingSeqlock::default());
        let (first, _) = seqlock.program();
        let search = thread::spawn({
            let seqlock = Arc::clone(&seqlock);
            move || seqlock.search(|| ())
        });
        let mut programming = first;
        while !search.is_finished() {
            // A programming begins right after the other has ended.
            drop(programming);
            programming = seqlock.program().0;
            thread::yield_now();
        }
        search.join().unwrap();
    }
}
