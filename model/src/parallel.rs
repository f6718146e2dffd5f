//! Work on many values in parallel, on all processors.

use std::{num::NonZero, panic::resume_unwind, thread};

/// Splits `items` into as many parts as there are processors, works on all parts in parallel, and returns their results in
/// order. A part has at least `least` items: below that another thread costs more than it saves. Without items the work is done
/// once, on an empty slice.
pub fn in_shares<T: Sync, R: Send>(
    items: &[T],
    least: usize,
    work: impl Fn(&[T]) -> R + Sync,
) -> Vec<R> {
    if items.len() <= least {
        // It takes longer to count the processors.
        return vec![work(items)];
    }
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let share = items.len().div_ceil(threads).max(least).max(1);
    thread::scope(|scope| {
        let mut shares = items.chunks(share);
        let own = shares.next().unwrap_or_default();
        let others: Vec<_> = shares.map(|share| scope.spawn(|| work(share))).collect();
        let own = work(own);
        // A panic is propagated here: the work is not done twice.
        let others = others
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|cause| resume_unwind(cause)));
        std::iter::once(own).chain(others).collect()
    })
}

/// Does two pieces of work, in parallel if they cover at least this many items: below that another thread costs more than it
/// saves.
pub fn both<A: Send, B>(
    items: usize,
    least: usize,
    one: impl FnOnce() -> A + Send,
    other: impl FnOnce() -> B,
) -> (A, B) {
    if items < least {
        return (one(), other());
    }
    thread::scope(|scope| {
        let one = scope.spawn(one);
        let other = other();
        (
            one.join().unwrap_or_else(|cause| resume_unwind(cause)),
            other,
        )
    })
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    #[test]
    fn shared_work_that_panics_is_done_once() {
        let runs = AtomicUsize::new(0);
        let work = |share: &[u32]| {
            if share.contains(&999) {
                runs.fetch_add(1, Ordering::Relaxed);
                panic!("test panic");
            }
        };
        let items: Vec<u32> = (0..1000).collect();
        let panicked = catch_unwind(AssertUnwindSafe(|| in_shares(&items, 1, work))).unwrap_err();
        assert_eq!(
            panicked.downcast_ref(),
            Some(&"test panic"),
            "the payload of the panic is unchanged"
        );
        assert_eq!(runs.into_inner(), 1);
    }

    #[test]
    fn both_pieces_of_work_are_done_however_few_items_there_are() {
        for items in [0, 9, 10, 11] {
            assert_eq!(
                both(items, 10, || items + 1, || "other"),
                (items + 1, "other")
            );
        }
    }

    #[test]
    fn shared_work_keeps_the_order_of_the_items() {
        for count in [0, 1, 2, 7, 1000] {
            let items: Vec<u32> = (0..count).collect();
            for least in [0, 1, 3, 5000] {
                let shares = in_shares(&items, least, <[u32]>::to_vec);
                assert_eq!(shares.concat(), items);
                assert!(
                    shares
                        .iter()
                        .rev()
                        .skip(1)
                        .all(|share| share.len() >= least)
                );
            }
        }
    }
}
