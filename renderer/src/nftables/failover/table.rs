//! The table of failover: which backends are watched, and what the packet path counted for them.
//!
//! The rules are those of [`layout::failover`](crate::nftables::layout). The table is made with the first backend that is watched, and
//! removed with the last one: without failover no packet passes any of its chains.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use nix::errno::Errno;

use crate::{
    RenderError,
    kernel::Kernel,
    linux::Linux,
    nftables::{
        Family,
        layout::{
            FAILOVER_TABLE, FailoverSet, parse_counted, write_failover_element,
            write_failover_request, write_failover_table,
        },
        netlink::{Batch, NetlinkError, Socket, Writer, constants::msg, remove_table},
    },
};

/// What the packet path counted for a backend within the last minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackendAttempts {
    /// The backend.
    pub backend: SocketAddr,
    /// First packets of connections to it. The counter begins anew after a minute without any.
    pub tried: u64,
    /// Answers to first packets, counted in the same way.
    pub answered: u64,
}

/// The table of failover.
#[derive(Debug)]
pub struct FailoverTable {
    kernel: Arc<dyn Kernel>,
    answer_within: Duration,
    /// There is a table while there is a socket.
    socket: Option<Socket>,
    /// The watched backends, and whether they have a second chance.
    watched: BTreeMap<SocketAddr, bool>,
    forgets_attempts: bool,
}

impl FailoverTable {
    /// Without backends there is no table. An attempt that is not answered within this time is forgotten; whole seconds, rounded up.
    pub fn new(answer_within: Duration) -> Self {
        Self {
            kernel: Linux::shared(),
            answer_within,
            socket: None,
            watched: BTreeMap::new(),
            forgets_attempts: true,
        }
    }

    /// True if unanswered attempts are forgotten in time, which needs the kernel's `nfnetlink_cttimeout`.
    pub const fn forgets_attempts(&self) -> bool {
        self.forgets_attempts
    }

    /// Removes the table. The next call of [`Self::watch`] makes it again with all watched backends.
    pub fn suspend(&mut self) {
        // The kernel removes it with its owner.
        self.socket = None;
    }

    /// True if there is a table.
    pub const fn exists(&self) -> bool {
        self.socket.is_some()
    }

    /// Changes which backends are watched: whether each has a second chance, or none if it is watched no longer. After an error there is
    /// no table; the next call makes it again with all of them.
    ///
    /// # Errors
    /// When the kernel refuses the table, as without a module that it needs.
    pub fn watch(
        &mut self,
        changes: impl IntoIterator<Item = (SocketAddr, Option<bool>)>,
    ) -> Result<(), RenderError> {
        let mut steps = Vec::new();
        for (backend, is_second) in changes {
            let was = match is_second {
                Some(is_second) => self.watched.insert(backend, is_second),
                None => self.watched.remove(&backend),
            };
            let mut step = |sets: [FailoverSet; 2], was: bool, is: bool| {
                if was != is {
                    steps.extend(sets.map(|set| (set, backend, is)));
                }
            };
            step(WATCHED, was.is_some(), is_second.is_some());
            let has_second = |state: Option<bool>| state == Some(true);
            step(SECOND_CHANCE, has_second(was), has_second(is_second));
        }
        let result = if self.watched.is_empty() {
            self.remove()
        } else if self.socket.is_some() {
            self.program(steps)
        } else {
            self.make()
        };
        self.checked(result, "program failover")
    }

    /// What was counted for all watched backends that were tried. After an error there is no table.
    ///
    /// # Errors
    /// When the table cannot be read, as when somebody has removed it.
    pub fn read(&mut self) -> Result<Vec<BackendAttempts>, RenderError> {
        let result = self.read_sets();
        self.checked(result, "read what was counted for failover")
    }

    /// Without its socket the table is gone.
    fn checked<T>(
        &mut self,
        result: Result<T, NetlinkError>,
        action: &str,
    ) -> Result<T, RenderError> {
        result
            .inspect_err(|_| self.socket = None)
            .map_err(|error| error.with_advice(action))
    }

    fn read_sets(&mut self) -> Result<Vec<BackendAttempts>, NetlinkError> {
        let Some(socket) = &mut self.socket else {
            return Ok(Vec::new());
        };
        let mut read = |set| {
            let mut counted: Vec<(SocketAddr, u64)> = Vec::new();
            for family in Family::ALL {
                let request =
                    |message: &mut Writer<'_>| write_failover_request(message, set, family);
                socket.pass(msg::GETSETELEM, request, |object| {
                    counted.extend(parse_counted(family, object));
                })?;
            }
            Ok::<_, NetlinkError>(counted)
        };
        // Attempts first: an answer that comes in between is then none too many.
        let tried = read(FailoverSet::Tried)?;
        let answered = BTreeMap::from_iter(read(FailoverSet::Answered)?);
        let attempts = tried.into_iter().map(|(backend, tried)| BackendAttempts {
            backend,
            tried,
            answered: answered.get(&backend).copied().unwrap_or(0),
        });
        Ok(attempts.collect())
    }

    /// Makes the table with all watched backends, with timeouts of its own if the kernel has them. Its socket owns it, so that it never
    /// outlives this process: kernels before 5.12 cannot have that.
    fn make(&mut self) -> Result<(), NetlinkError> {
        let mut socket = Socket::open(&self.kernel)?;
        let mut commit = |answer_within| {
            let mut batch = Batch::new();
            write_failover_table(&mut batch, answer_within);
            socket.commit(batch)
        };
        let is_unknown = |error: &NetlinkError| {
            [Errno::ENOENT, Errno::EINVAL, Errno::EOPNOTSUPP]
                .iter()
                .any(|errno| error.errno() == Some(*errno as i32))
        };
        self.forgets_attempts = match commit(Some(self.answer_within)) {
            Err(error) if is_unknown(&error) => commit(None).map(|_| false)?,
            result => result.map(|_| true)?,
        };
        self.socket = Some(socket);
        let steps = self.watched.iter().flat_map(|(backend, is_second)| {
            let second = SECOND_CHANCE.into_iter().filter(|_| *is_second);
            WATCHED
                .into_iter()
                .chain(second)
                .map(|set| (set, *backend, true))
        });
        let steps = steps.collect();
        self.program(steps)
    }

    /// Adds elements and removes them, in as many transactions as the socket demands.
    fn program(&mut self, steps: Vec<(FailoverSet, SocketAddr, bool)>) -> Result<(), NetlinkError> {
        let Some(socket) = &mut self.socket else {
            return Ok(());
        };
        let mut batch = Batch::new();
        for (set, backend, is_added) in steps {
            write_failover_element(&mut batch, set, backend, is_added);
            if batch.len() + MESSAGE_ROOM > socket.batch_limit() {
                socket.commit(std::mem::replace(&mut batch, Batch::new()))?;
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        socket.commit(batch).map(drop)
    }

    fn remove(&mut self) -> Result<(), NetlinkError> {
        match self.socket.take() {
            Some(mut socket) => remove_failover_table(&mut socket),
            None => Ok(()),
        }
    }
}

/// The sets of backends that are watched, and of those with a second chance.
const WATCHED: [FailoverSet; 2] = [FailoverSet::Watched, FailoverSet::WatchedErrors];
const SECOND_CHANCE: [FailoverSet; 2] =
    [FailoverSet::SecondChance, FailoverSet::SecondChanceErrors];

/// A message about an element is shorter.
const MESSAGE_ROOM: usize = 512;

/// Removes the table of failover if there is one that no other process owns.
pub(crate) fn remove_failover_table(socket: &mut Socket) -> Result<(), NetlinkError> {
    remove_table(socket, FAILOVER_TABLE)
}
