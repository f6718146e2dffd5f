//! The way to a renderer's thread: one piece of work at a time.
//!
//! A thread that sleeps takes about as long to wake up on an idle processor as a change takes to be decoded and combined. So for
//! changes it is woken on the processor that the loop runs on, which has them in its caches; and it gets that at once, before what
//! else the loop has to do: the history, health checks, the mirror.

use std::{
    sync::{
        Arc, OnceLock,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use nix::{
    sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity},
    unistd::{Pid, gettid},
};

use super::worker::Work;

/// Work, and the processors that the thread may run on from now on, if it could run on one alone until now.
type Message = (Work, Option<CpuSet>);

/// The loop's end.
#[derive(Debug)]
pub(super) struct WorkSender {
    work: SyncSender<Message>,
    thread: Arc<OnceLock<Pid>>,
}

/// The thread's end.
#[derive(Debug)]
pub(super) struct WorkReceiver {
    work: Receiver<Message>,
    thread: Arc<OnceLock<Pid>>,
}

/// A queue for one piece of work.
pub(super) fn queue() -> (WorkSender, WorkReceiver) {
    let (sender, work) = sync_channel(1);
    let thread = Arc::new(OnceLock::new());
    (WorkSender { work: sender, thread: Arc::clone(&thread) }, WorkReceiver { work, thread })
}

impl WorkSender {
    /// Hands over work to a thread that has done all it got before. False if there is work already, or nobody takes it.
    pub(super) fn send(&self, work: Work) -> bool {
        // A resync has time, and is for all processors.
        let is_short = matches!(work, Work::Update(_));
        let everywhere = if is_short { self.bring_here() } else { None };
        let is_sent = self.work.try_send((work, everywhere)).is_ok();
        if is_short {
            thread::yield_now();
        }
        is_sent
    }

    /// Lets the thread, which sleeps, wake up on this processor. Where it could run before; none if it still can. So it is where
    /// this is not allowed, and then it wakes up where the kernel likes.
    fn bring_here(&self) -> Option<CpuSet> {
        let thread = *self.thread.get()?;
        let (here, everywhere) = (sched_getcpu().ok()?, sched_getaffinity(thread).ok()?);
        let mut only_here = CpuSet::new();
        only_here.set(here).ok()?;
        let may_be_here = everywhere.is_set(here).ok()?;
        (may_be_here && sched_setaffinity(thread, &only_here).is_ok()).then_some(everywhere)
    }
}

impl WorkReceiver {
    /// The next piece of work; none when nobody can send one any more. Always called by the same thread.
    pub(super) fn next(&self) -> Option<Work> {
        self.thread.get_or_init(gettid);
        let (work, everywhere) = self.work.recv().ok()?;
        if let Some(everywhere) = everywhere
            && let Err(error) = sched_setaffinity(Pid::from_raw(0), &everywhere)
        {
            tracing::debug!(%error, "the thread of a renderer stays on one processor");
        }
        Some(work)
    }
}

#[cfg(test)]
mod tests {
    use contiv_model::ChangeSet;

    use super::*;

    fn update() -> Work {
        Work::Update(Arc::new(ChangeSet::default()))
    }

    fn processors() -> CpuSet {
        sched_getaffinity(Pid::from_raw(0)).unwrap()
    }

    #[test]
    fn there_is_room_for_one_piece_of_work() {
        let (sender, receiver) = queue();
        for _ in 0..3 {
            assert!(sender.send(Work::Describe(Vec::new())));
            assert!(!sender.send(Work::Describe(Vec::new())), "there is work already");
            assert!(receiver.next().is_some());
        }
        drop(sender);
        assert!(receiver.next().is_none());
    }

    #[test]
    fn work_comes_however_it_is_sent_and_is_done_on_any_processor() {
        let (sender, receiver) = queue();
        let all = processors();
        let (done, is_done) = sync_channel(1);
        let thread = thread::spawn(move || {
            while receiver.next().is_some() {
                done.send(processors()).unwrap();
            }
        });
        for number in 0..1000 {
            assert!(sender.send(if number % 3 > 0 { update() } else { Work::Describe(Vec::new()) }));
            assert_eq!(is_done.recv().unwrap(), all);
        }
        drop(sender);
        thread.join().unwrap();
    }

    #[test]
    fn a_thread_is_not_brought_to_a_processor_that_it_must_not_run_on() {
        let (sender, receiver) = queue();
        let here = sched_getcpu().unwrap();
        let mut elsewhere = processors();
        elsewhere.unset(here).unwrap();
        let mut only_here = CpuSet::new();
        only_here.set(here).unwrap();
        let is_possible = elsewhere != CpuSet::new();
        let (done, is_done) = sync_channel(1);
        let thread = thread::spawn(move || {
            if is_possible {
                sched_setaffinity(Pid::from_raw(0), &elsewhere).unwrap();
            }
            receiver.thread.get_or_init(gettid);
            done.send(()).unwrap();
            while receiver.next().is_some() {
                done.send(()).unwrap();
            }
            !is_possible || processors() == elsewhere
        });
        is_done.recv().unwrap();
        // The sender is on the processor that the thread is kept from.
        sched_setaffinity(Pid::from_raw(0), &only_here).unwrap();
        for _ in 0..100 {
            assert!(sender.send(update()));
            is_done.recv().unwrap();
        }
        drop(sender);
        assert!(thread.join().unwrap());
    }
}
