//! Hears what others do to the table.
//!
//! The kernel sends, for each transaction, a message for each thing that was added or deleted, and last one with the new
//! generation that names the process. Only transactions of others come in here; those that leave our table alone are
//! passed over.

mod damage;
mod summary;

use std::{
    collections::VecDeque,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
};

use netlink_sys::protocols::NETLINK_NETFILTER;
use nix::poll::PollTimeout;

pub(super) use self::damage::{Damage, Touched};
use self::{damage::DamagedElements, summary::Summary};
use super::{
    explain,
    layout::TABLE,
    netlink::{
        Attributes, NetlinkError, Socket,
        constants::{NFNL_SUBSYS_NFTABLES, NFNLGRP_NFTABLES, NFPROTO_INET, generation, msg, table},
    },
};
use crate::{
    ForeignChange, Process, RenderError, Watch,
    netlink::{Heard, Listener, message::messages},
};

/// The generation follows its transaction at once. Should it not come, the change is told without it after these
/// milliseconds.
const GENERATION_TIMEOUT: u8 = 20;
/// How many changes are told to the renderer in detail before it looks at everything anyway.
pub(super) const DAMAGES: usize = 64;

/// Hears what others do to the table, and tells the renderer in detail.
pub(super) struct TableWatch {
    listener: Listener,
    transaction: Summary,
    damage: DamagedElements,
    /// What is complete, and not yet handed out.
    heard: VecDeque<ForeignChange>,
    renderer: SyncSender<Damage>,
}

impl TableWatch {
    /// Listens from now on to what others do than the owner of `socket`.
    pub(super) fn start(socket: &mut Socket) -> Result<(Self, Receiver<Damage>), NetlinkError> {
        let (listener, membership) = Listener::join(NETLINK_NETFILTER, &[NFNLGRP_NFTABLES], socket.port())?;
        socket.membership = Some(membership);
        let (renderer, damages) = sync_channel(DAMAGES);
        // What was done before is not known. There is room for this.
        let _ = renderer.try_send(Damage::Anything);
        let watch = Self {
            listener,
            transaction: Summary::default(),
            damage: DamagedElements::default(),
            heard: VecDeque::new(),
            renderer,
        };
        Ok((watch, damages))
    }

    fn take(&mut self, received: &[u8]) {
        for message in messages(received) {
            let (kind, family) = (message.kind, message.family());
            let Some(object) = message.object(NFNL_SUBSYS_NFTABLES) else { continue };
            let [_, kind] = kind.to_be_bytes();
            if kind == msg::NEWGEN {
                self.complete(process(object));
            } else if family == Some(NFPROTO_INET) && object.text(table::NAME) == Some(TABLE) {
                // The name of the table has the same number in all kinds of objects.
                if self.damage.take(kind, object) {
                    self.transaction.take(kind, object);
                }
            }
        }
    }

    /// The transaction is complete: if it had something to do with the table, that is told.
    fn complete(&mut self, by: Option<Process>) {
        let (transaction, damage) = (std::mem::take(&mut self.transaction), std::mem::take(&mut self.damage));
        if let Some(what) = transaction.text() {
            self.tell(ForeignChange { what, by }, damage.into());
        }
    }

    fn tell_unknown(&mut self, when: &str, damage: Damage) {
        let what = format!("may have changed something while {when}");
        self.tell(ForeignChange { what, by: None }, damage);
    }

    fn tell(&mut self, change: ForeignChange, damage: Damage) {
        // If there is no room the renderer looks at everything.
        let _ = self.renderer.try_send(damage);
        self.heard.push_back(change);
    }
}

impl Watch for TableWatch {
    fn next(&mut self) -> Result<Option<ForeignChange>, RenderError> {
        loop {
            if let Some(change) = self.heard.pop_front() {
                return Ok(Some(change));
            }
            let timeout =
                if self.transaction.is_empty() { PollTimeout::NONE } else { GENERATION_TIMEOUT.into() };
            match self.listener.hear(timeout) {
                Ok(Heard::Notifications(received)) => self.take(&received),
                Ok(Heard::Silence) => self.complete(None),
                Ok(Heard::Overflow) => {
                    self.tell_unknown("notifications were lost", Damage::Anything);
                }
                Ok(Heard::Missed) => {
                    self.tell_unknown("a large transaction was committed", Damage::Missed);
                }
                Ok(Heard::End) => return Ok(None),
                Err(error) => return Err(explain("tell what others do to the table", &error)),
            }
        }
    }
}

fn process(object: Attributes<'_>) -> Option<Process> {
    let name = object.text(generation::PROC_NAME)?.to_owned();
    Some(Process { name, pid: object.u32(generation::PROC_PID)? })
}

/// What these notifications tell, all of them as one transaction.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn told(received: &[u8]) -> Option<String> {
    let (mut summary, mut damage) = (Summary::default(), DamagedElements::default());
    for message in messages(received) {
        let [_, kind] = message.kind.to_be_bytes();
        let Some(object) = message.object(NFNL_SUBSYS_NFTABLES) else { continue };
        if damage.take(kind, object) {
            summary.take(kind, object);
        }
        let _ = process(object);
    }
    let _ = Damage::from(damage);
    summary.text()
}
