//! Whether the kernel has rules that serve anything.

use super::rules;
use crate::nftables::{
    kernel::read,
    layout::{Form, Set},
    netlink::{NetlinkError, Socket},
};

/// What the table in the kernel is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableContent {
    /// There is none.
    Missing,
    /// There is one, and no service is in it.
    Empty,
    /// Its chains or sets are not those of this version: another program changed them, or another version made them.
    Different,
    /// It has frontends of services, and the rules for them.
    Services,
}

/// Reads the content of the table.
pub(super) fn read_content(socket: &mut Socket) -> Result<TableContent, NetlinkError> {
    if read::table_header(socket)?.is_none() {
        return Ok(TableContent::Missing);
    }
    let existing = read::existing(socket)?;
    if !existing.is_of_this_layout() || !rules::differences(socket, &existing)?.is_empty() {
        return Ok(TableContent::Different);
    }
    let holds_frontends =
        |set: &Set| matches!(set.kind.form(), Form::Numbers { .. } | Form::Frontends);
    for set in existing.shaped.into_iter().filter(holds_frontends) {
        if read::has_elements(socket, set)? {
            return Ok(TableContent::Services);
        }
    }
    Ok(TableContent::Empty)
}
