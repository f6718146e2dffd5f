//! The way to a renderer's thread: work, one piece at a time, and word that some is about to come.
//!
//! A thread that sleeps takes longer to wake up than a change takes to be decoded and combined. So it is woken before
//! that, and is awake when the change is there.

use std::{
    hint,
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, TryRecvError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use super::worker::Work;

/// How long a thread stays awake for work that was announced.
const AWAKE: Duration = Duration::from_micros(150);
/// How long at the end of that it lets others have the processor. Before, which is as long as a change takes to be decoded and
/// combined, whoever got it would not be done in time: the store has just sent the change, and often runs on this machine.
const YIELDING: Duration = Duration::from_micros(50);

/// What goes through the queue.
#[derive(Debug)]
enum Message {
    Soon,
    Work(Work),
}

/// The loop's end.
#[derive(Debug)]
pub(super) struct WorkSender {
    messages: SyncSender<Message>,
    /// Word is on its way, so that there is never more than one.
    announced: Arc<AtomicBool>,
    /// There is a processor for the thread to be awake on, besides the loop's.
    is_of_use: bool,
}

/// The thread's end.
#[derive(Debug)]
pub(super) struct WorkReceiver {
    messages: Receiver<Message>,
    announced: Arc<AtomicBool>,
}

/// A queue for one piece of work.
pub(super) fn queue() -> (WorkSender, WorkReceiver) {
    let (sender, messages) = sync_channel(2);
    let announced = Arc::new(AtomicBool::new(false));
    let is_of_use =
        thread::available_parallelism().is_ok_and(|processors| processors > NonZero::<usize>::MIN);
    (
        WorkSender { messages: sender, announced: Arc::clone(&announced), is_of_use },
        WorkReceiver { messages, announced },
    )
}

impl WorkSender {
    /// Hands over work. False if there is work already, or nobody takes it.
    pub(super) fn send(&self, work: Work) -> bool {
        self.messages.try_send(Message::Work(work)).is_ok()
    }

    /// Says that work may come in a moment.
    pub(super) fn announce(&self) {
        if self.is_of_use && !self.announced.swap(true, Ordering::AcqRel) {
            // A thread that is gone is noticed with the work.
            let _ = self.messages.try_send(Message::Soon);
        }
    }
}

impl WorkReceiver {
    /// The next piece of work; none when nobody can send one any more.
    pub(super) fn next(&self) -> Option<Work> {
        let mut awake_until: Option<Instant> = None;
        loop {
            let message = match awake_until {
                None => self.messages.recv().ok()?,
                Some(until) => match self.messages.try_recv() {
                    Ok(message) => message,
                    Err(TryRecvError::Disconnected) => return None,
                    Err(TryRecvError::Empty) => {
                        let left = until.saturating_duration_since(Instant::now());
                        awake_until = (!left.is_zero()).then_some(until);
                        if left > YIELDING {
                            hint::spin_loop();
                        } else {
                            thread::yield_now();
                        }
                        continue;
                    }
                },
            };
            match message {
                Message::Work(work) => return Some(work),
                Message::Soon => {
                    self.announced.store(false, Ordering::Release);
                    awake_until = Some(Instant::now() + AWAKE);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work() -> Work {
        Work::Describe(Vec::new())
    }

    #[test]
    fn there_is_room_for_one_piece_of_work_however_often_it_is_announced() {
        let (mut sender, receiver) = queue();
        sender.is_of_use = true;
        for _ in 0..3 {
            for _ in 0..10 {
                sender.announce();
            }
            assert!(sender.send(work()));
            assert!(!sender.send(work()), "there is work already");
            assert!(receiver.next().is_some());
        }
    }

    #[test]
    fn work_comes_whether_it_was_announced_or_not_and_however_late() {
        let (mut sender, receiver) = queue();
        sender.is_of_use = true;
        let thread = thread::spawn(move || std::iter::from_fn(|| receiver.next()).count());
        let mut sent = 0;
        for number in 0..1000 {
            if number % 3 > 0 {
                sender.announce();
            }
            if number % 100 == 0 {
                thread::sleep(2 * AWAKE);
            }
            sent += usize::from(sender.send(work()));
        }
        drop(sender);
        assert_eq!(thread.join().unwrap(), sent);
    }
}
