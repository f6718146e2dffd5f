//! Counts new connections by frontend and backend in the kernel, while somebody looks.

use crate::{
    RenderError,
    linux::Linux,
    nftables::{
        Family,
        layout::{
            BALANCE_SIZE, BALANCE_TABLE, NewConnections, parse_new_connections,
            write_balance_request, write_balance_table,
        },
        netlink::{Batch, NetlinkError, Socket, Writer, constants::msg, remove_table},
    },
};

/// The table that counts. The kernel removes it with this.
#[derive(Debug)]
pub struct BalanceTable {
    socket: Socket,
}

/// What was counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BalanceCounts {
    /// The connections of each frontend and backend that had any, in no order.
    pub new_connections: Vec<NewConnections>,
    /// More pairs of frontend and backend have connections than can be counted.
    pub is_full: bool,
}

impl BalanceTable {
    /// Makes the table, in this network namespace. Needs CAP_NET_ADMIN and Linux 5.12.
    ///
    /// # Errors
    /// When the kernel refuses the table, or another process has one.
    pub fn begin() -> Result<Self, RenderError> {
        let begin = || {
            let mut socket = Socket::open(&Linux::shared())?;
            let mut batch = Batch::new();
            write_balance_table(&mut batch);
            socket.commit(batch)?;
            Ok::<_, NetlinkError>(Self { socket })
        };
        begin().map_err(|error| error.with_advice("count connections by backend"))
    }

    /// What was counted so far.
    ///
    /// # Errors
    /// When the table cannot be read, as when somebody has removed it.
    pub fn read(&mut self) -> Result<BalanceCounts, RenderError> {
        let mut counts = BalanceCounts::default();
        let mut read = |family| {
            let before = counts.new_connections.len();
            let request = |message: &mut Writer<'_>| write_balance_request(message, family);
            self.socket.pass(msg::GETSETELEM, request, |object| {
                let found = parse_new_connections(family, object);
                counts.new_connections.extend(found);
            })?;
            let found = counts.new_connections.len() - before;
            counts.is_full |= found >= BALANCE_SIZE as usize;
            Ok::<_, NetlinkError>(())
        };
        Family::ALL
            .into_iter()
            .try_for_each(&mut read)
            .map_err(|error| error.with_advice("read the connections by backend"))?;
        Ok(counts)
    }
}

/// Removes the table if there is one that no other process owns.
pub(super) fn remove_balance_table(socket: &mut Socket) -> Result<(), NetlinkError> {
    remove_table(socket, BALANCE_TABLE)
}
