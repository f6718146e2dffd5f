//! The kernel's side of new attempts on drained flows: a table that records them, made when it is needed.

use std::{collections::BTreeSet, sync::Arc};

use nix::errno::Errno;

use crate::{
    kernel::Kernel,
    netlink::{NetlinkError, Socket, Writer},
    nftables::{
        Family,
        layout::{
            ATTEMPTS_TABLE, Attempt, parse_attempts, write_attempts_request, write_attempts_table,
        },
        netlink::{Batch, constants::msg, remove_table},
    },
};

/// The table of attempts. The kernel removes it with the socket, so it never outlives this process (Linux 5.12).
#[derive(Debug)]
pub(super) struct AttemptTable {
    kernel: Arc<dyn Kernel>,
    /// There is a table while there is a socket.
    socket: Option<Socket>,
    /// There is none of an earlier process either.
    is_absent: bool,
}

impl AttemptTable {
    pub(super) const fn new(kernel: Arc<dyn Kernel>) -> Self {
        Self {
            kernel,
            socket: None,
            is_absent: false,
        }
    }

    /// Makes the table, unless it is there.
    pub(super) fn make(&mut self) -> Result<(), NetlinkError> {
        if self.socket.is_some() {
            return Ok(());
        }
        let mut socket = Socket::open(&self.kernel)?;
        let is_unknown_flag = |error: &NetlinkError| {
            [Errno::EINVAL, Errno::EOPNOTSUPP]
                .iter()
                .any(|errno| error.errno() == Some(*errno as i32))
        };
        let mut commit = |is_owned| {
            let mut batch = Batch::new();
            write_attempts_table(&mut batch, is_owned);
            socket.commit(batch)
        };
        match commit(true) {
            Err(error) if is_unknown_flag(&error) => commit(false)?,
            result => result?,
        };
        (self.socket, self.is_absent) = (Some(socket), false);
        Ok(())
    }

    /// Removes the table, if it is there.
    pub(super) fn remove(&mut self) -> Result<(), NetlinkError> {
        if self.is_absent {
            return Ok(());
        }
        let mut socket = self
            .socket
            .take()
            .map_or_else(|| Socket::open(&self.kernel), Ok)?;
        remove_attempt_table(&mut socket)?;
        self.is_absent = true;
        Ok(())
    }

    /// The recorded attempts of the last seconds. After a failure, as when somebody removed the table, it is made again.
    pub(super) fn read(&mut self) -> Result<BTreeSet<Attempt>, NetlinkError> {
        let mut attempts = BTreeSet::new();
        let Some(mut socket) = self.socket.take() else {
            return Ok(attempts);
        };
        for family in Family::ALL {
            let write_request = |message: &mut Writer<'_>| write_attempts_request(message, family);
            socket.pass(msg::GETSETELEM, write_request, |object| {
                attempts.extend(parse_attempts(family, object));
            })?;
        }
        self.socket = Some(socket);
        Ok(attempts)
    }
}

/// Removes the table, also that of an earlier process; not that of another one, with which it ends.
pub(crate) fn remove_attempt_table(socket: &mut Socket) -> Result<(), NetlinkError> {
    remove_table(socket, ATTEMPTS_TABLE)
}
