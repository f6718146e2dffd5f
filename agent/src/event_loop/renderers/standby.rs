//! Changes are applied in the thread of the runtime that the loop has just run in: it need not wake up, and its processor has the
//! change in its caches. Another thread takes about as long to wake up as a change takes to be decoded and combined.
//!
//! A change that takes long after all, as the kernel lets it wait for somebody else's transaction, must hold up nothing. So after a
//! while another thread of the runtime is woken, and goes on with all the rest. A timer does that: to set it wakes nobody.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use nix::sys::{
    time::TimeSpec,
    timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
};
use tokio::{runtime::Handle, task::block_in_place};

/// How long the other threads of the runtime may sleep while one is blocked.
pub(in crate::event_loop) const PATIENCE: Duration = Duration::from_millis(5);

/// Blocks at most one thread of a runtime.
#[derive(Debug)]
pub(super) struct Standby {
    alarm: Arc<Alarm>,
    /// A thread is blocked, or may be.
    is_taken: AtomicBool,
}

#[derive(Debug)]
struct Alarm {
    timer: TimerFd,
    has_ended: AtomicBool,
}

impl Standby {
    /// For the runtime that this is called on. None if it has no other thread that could go on.
    ///
    /// # Errors
    /// When the timer cannot be made, or the thread that waits for it.
    pub(super) fn of_runtime() -> io::Result<Option<Self>> {
        let runtime = Handle::current();
        if runtime.metrics().num_workers() < 2 {
            return Ok(None);
        }
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC)?;
        let alarm = Arc::new(Alarm { timer, has_ended: AtomicBool::new(false) });
        let heard = Arc::clone(&alarm);
        thread::Builder::new().name("standby".to_owned()).spawn(move || heard.wake(&runtime))?;
        Ok(Some(Self { alarm, is_taken: AtomicBool::new(false) }))
    }

    /// Does work that blocks, but for a short time as a rule. Called by tasks of the runtime; the work does not panic.
    pub(super) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        // One thread must be left. And it is known at once that a second one is needed.
        if self.is_taken.swap(true, Ordering::AcqRel) {
            return block_in_place(work);
        }
        let done = if self.alarm.set(PATIENCE).is_ok() { work() } else { block_in_place(work) };
        if let Err(error) = self.alarm.timer.unset() {
            tracing::debug!(%error, "a timer cannot be stopped: a thread wakes up for nothing");
        }
        self.is_taken.store(false, Ordering::Release);
        done
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        self.alarm.has_ended.store(true, Ordering::Release);
        // If it cannot be set, the thread sleeps until the process ends.
        let _ = self.alarm.set(Duration::from_nanos(1));
    }
}

impl Alarm {
    fn set(&self, after: Duration) -> nix::Result<()> {
        let once = Expiration::OneShot(TimeSpec::from_duration(after));
        self.timer.set(once, TimerSetTimeFlags::empty())
    }

    /// Wakes a thread of the runtime each time the timer ends. What a runtime is given from outside, one of the threads that sleep
    /// takes; it then takes over what the blocked one has not begun, and listens for input and timers in its place.
    fn wake(&self, runtime: &Handle) {
        while self.timer.wait().is_ok() && !self.has_ended.load(Ordering::Acquire) {
            drop(runtime.spawn(async {}));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::UnixStream,
        sync::mpsc,
        time::sleep,
    };

    use super::*;

    const LONG: Duration = Duration::from_secs(2);

    /// A task that blocks for long whenever it is told, in the thread of whoever tells it.
    fn blocker(standby: &Arc<Standby>) -> mpsc::Sender<()> {
        let standby = Arc::clone(standby);
        let (sender, mut told) = mpsc::channel(1);
        tokio::spawn(async move {
            while told.recv().await.is_some() {
                standby.run(|| thread::sleep(LONG));
            }
        });
        sender
    }

    /// Input, timers, and tasks that wake each other.
    async fn everything_else() {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let (question, mut asked) = mpsc::channel::<u8>(1);
        let answers = tokio::spawn(async move {
            while let Some(byte) = asked.recv().await {
                far.write_all(&[byte]).await.unwrap();
            }
        });
        for byte in 0..20 {
            question.send(byte).await.unwrap();
            assert_eq!(near.read_u8().await.unwrap(), byte);
            sleep(Duration::from_millis(2)).await;
        }
        drop(question);
        answers.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn work_that_blocks_for_long_holds_up_nothing_else() {
        let standby = Arc::new(Standby::of_runtime().unwrap().unwrap());
        // The second one finds that a thread is blocked already.
        for blocked in 1..=2 {
            let blockers: Vec<_> = (0..blocked).map(|_| blocker(&standby)).collect();
            // In a task, which the runtime's threads run; and they are idle when it goes on.
            let going_on = tokio::spawn(async move {
                sleep(Duration::from_millis(50)).await;
                let start = Instant::now();
                for blocker in &blockers {
                    blocker.send(()).await.unwrap();
                }
                // As the loop does.
                sleep(PATIENCE).await;
                everything_else().await;
                start.elapsed()
            });
            let took = going_on.await.unwrap();
            assert!(took < LONG / 2, "{blocked} blocked: {took:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_task_that_is_woken_by_the_one_that_waits_for_it_goes_on_in_the_same_thread() {
        let standby = Standby::of_runtime().unwrap().unwrap();
        let (work, mut given) = mpsc::channel::<()>(1);
        let (report, mut done) = mpsc::channel(1);
        tokio::spawn(async move {
            while given.recv().await.is_some() {
                report.send(standby.run(|| thread::current().id())).await.unwrap();
            }
        });
        let handed_out = tokio::spawn(async move {
            let mut here = 0;
            for _ in 0..1000 {
                let caller = thread::current().id();
                work.send(()).await.unwrap();
                here += usize::from(done.recv().await.unwrap() == caller);
            }
            here
        });
        // Not each time: an idle thread of the runtime may take it.
        let here = handed_out.await.unwrap();
        assert!(here > 500, "{here} of 1000");
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_has_nobody_to_stand_by() {
        assert!(Standby::of_runtime().unwrap().is_none());
    }
}
