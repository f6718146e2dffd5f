//! Watches foreign changes of the table.
//!
//! For each transaction, the kernel sends a message for every object that was added or deleted, and then one with the new
//! generation, which names the process. Our own transactions are filtered out; foreign ones that do not touch our table are
//! ignored.

mod foreign_change;
mod summary;

use std::{
    collections::VecDeque,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    task::Poll,
    time::Duration,
};

pub(crate) use self::foreign_change::{ChangedElements, ForeignTableChange};
use self::{foreign_change::ForeignChangeCollector, summary::Summary};
use crate::nftables::{
    layout::TABLE,
    netlink::{
        Attributes, NetlinkError, Socket,
        constants::{NFNL_SUBSYS_NFTABLES, NFNLGRP_NFTABLES, NFPROTO_INET, generation, msg, table},
    },
};
use crate::{
    ForeignChange, Process, RenderError, Watch,
    kernel::{ListenerEvent, NetlinkProtocol, Notifications},
    netlink::message::messages,
};

const LISTEN: &str = "listen to notifications of the kernel";

/// The generation follows its transaction immediately. If it does not arrive in this time, the change is reported without its
/// process.
const GENERATION_TIMEOUT: Duration = Duration::from_millis(20);
/// The number of detailed changes that are queued for the renderer. If there are more, it compares everything.
pub(crate) const MAX_PENDING_CHANGES: usize = 64;

/// Watches foreign changes of the table, and reports them to the renderer in detail.
pub(crate) struct TableWatch {
    listener: Box<dyn Notifications>,
    transaction: Summary,
    foreign_change: ForeignChangeCollector,
    /// Complete changes that were not returned yet.
    pending: VecDeque<ForeignChange>,
    renderer: SyncSender<ForeignTableChange>,
}

impl TableWatch {
    /// Starts to watch for changes by processes other than the owner of `socket`.
    pub(crate) fn start(
        socket: &mut Socket,
    ) -> Result<(Self, Receiver<ForeignTableChange>), NetlinkError> {
        let failed = |source| NetlinkError::Socket {
            action: LISTEN,
            source,
        };
        let (listener, membership) = socket
            .kernel()
            .listen(
                NetlinkProtocol::Netfilter,
                &[NFNLGRP_NFTABLES],
                socket.port(),
            )
            .map_err(failed)?;
        socket.membership = Some(membership);
        let (renderer, foreign_changes) = sync_channel(MAX_PENDING_CHANGES);
        // Earlier changes are unknown. The queue is still empty.
        let _ = renderer.try_send(ForeignTableChange::Anything);
        let watch = Self {
            listener,
            transaction: Summary::default(),
            foreign_change: ForeignChangeCollector::default(),
            pending: VecDeque::new(),
            renderer,
        };
        Ok((watch, foreign_changes))
    }

    fn handle(&mut self, received: &[u8]) {
        for message in messages(received) {
            let (kind, family) = (message.kind, message.family());
            let Some(object) = message.object(NFNL_SUBSYS_NFTABLES) else {
                continue;
            };
            let [_, kind] = kind.to_be_bytes();
            if kind == msg::NEWGEN {
                self.complete(process(object));
            } else if family == Some(NFPROTO_INET) && object.text(table::NAME) == Some(TABLE) {
                // The table's name has the same attribute number in all kinds of objects.
                if self.foreign_change.add(kind, object) {
                    self.transaction.add(kind, object);
                }
            }
        }
    }

    /// The transaction is complete: if it changed the table, it is reported.
    fn complete(&mut self, by: Option<Process>) {
        let (transaction, foreign_change) = (
            std::mem::take(&mut self.transaction),
            std::mem::take(&mut self.foreign_change),
        );
        if let Some(what) = transaction.text() {
            self.report(ForeignChange { what, by }, foreign_change.into());
        }
    }

    fn report_unknown(&mut self, when: &str, foreign_change: ForeignTableChange) {
        let what = format!("may have changed something while {when}");
        self.report(ForeignChange { what, by: None }, foreign_change);
    }

    fn report(&mut self, change: ForeignChange, foreign_change: ForeignTableChange) {
        // If the queue is full the renderer compares everything.
        let _ = self.renderer.try_send(foreign_change);
        self.pending.push_back(change);
    }
}

impl TableWatch {
    /// Reads notifications for at most `timeout`.
    fn receive(&mut self, timeout: Option<Duration>) -> Result<Next, RenderError> {
        match self.listener.next_event(timeout) {
            Ok(ListenerEvent::Notifications(received)) => self.handle(&received),
            Ok(ListenerEvent::Silence) if self.transaction.is_empty() => return Ok(Next::Silence),
            Ok(ListenerEvent::Silence) => self.complete(None),
            Ok(ListenerEvent::Overflow) => {
                self.report_unknown("notifications were lost", ForeignTableChange::Anything);
            }
            Ok(ListenerEvent::Missed) => {
                self.report_unknown(
                    "a large transaction was committed",
                    ForeignTableChange::Missed,
                );
            }
            Ok(ListenerEvent::End) => return Ok(Next::End),
            Err(source) => {
                let error = NetlinkError::Socket {
                    action: LISTEN,
                    source,
                };
                return Err(error.with_advice("listen to changes of the table"));
            }
        }
        Ok(Next::More)
    }
}

/// The state of the notification socket after a message was read.
enum Next {
    More,
    /// Nothing at present.
    Silence,
    /// Nothing ever again.
    End,
}

impl Watch for TableWatch {
    fn next(&mut self) -> Result<Option<ForeignChange>, RenderError> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return Ok(Some(change));
            }
            let timeout = (!self.transaction.is_empty()).then_some(GENERATION_TIMEOUT);
            if let Next::End = self.receive(timeout)? {
                return Ok(None);
            }
        }
    }

    fn try_next(&mut self) -> Result<Poll<Option<ForeignChange>>, RenderError> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return Ok(Poll::Ready(Some(change)));
            }
            match self.receive(Some(Duration::ZERO))? {
                Next::More => (),
                Next::Silence => return Ok(Poll::Pending),
                Next::End => return Ok(Poll::Ready(None)),
            }
        }
    }
}

fn process(object: Attributes<'_>) -> Option<Process> {
    let name = object.text(generation::PROC_NAME)?.to_owned();
    Some(Process {
        name,
        pid: object.u32(generation::PROC_PID)?,
    })
}

/// Summarizes notifications as those of a single transaction.
#[cfg(any(test, fuzzing))]
pub(crate) fn summarize(received: &[u8]) -> Option<String> {
    let (mut summary, mut foreign_change) = (Summary::default(), ForeignChangeCollector::default());
    for message in messages(received) {
        let [_, kind] = message.kind.to_be_bytes();
        let Some(object) = message.object(NFNL_SUBSYS_NFTABLES) else {
            continue;
        };
        if foreign_change.add(kind, object) {
            summary.add(kind, object);
        }
        let _ = process(object);
    }
    let _ = ForeignTableChange::from(foreign_change);
    summary.text()
}
