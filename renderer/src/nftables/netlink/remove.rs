//! Removes a table that is beside the main one.

use nix::errno::Errno;

use super::{
    Batch, NetlinkError, Socket,
    constants::{msg, table},
};

/// Removes a table, if it is there and no other process owns it.
pub(crate) fn remove_table(socket: &mut Socket, name: &str) -> Result<(), NetlinkError> {
    let dump = socket.dump(msg::GETTABLE, |_| ())?;
    if !dump
        .objects()
        .any(|object| object.text(table::NAME) == Some(name))
    {
        return Ok(());
    }
    let mut batch = Batch::new();
    write_removal(&mut batch, name);
    let is_gone = |error: &NetlinkError| {
        [Errno::ENOENT, Errno::EPERM]
            .iter()
            .any(|errno| error.errno() == Some(*errno as i32))
    };
    match socket.commit(batch) {
        Err(error) if is_gone(&error) => Ok(()),
        result => result.map(drop),
    }
}

/// Adds the message that removes a table.
pub(crate) fn write_removal(batch: &mut Batch, name: &str) {
    batch.delete(msg::DELTABLE, format!("remove table {name}"), |message| {
        message.text(table::NAME, name);
    });
}
