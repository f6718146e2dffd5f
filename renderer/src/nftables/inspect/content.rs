//! Whether the kernel has rules that serve anything.

use super::InspectError;
use crate::{
    linux::Linux,
    nftables::{
        layout::{Form, Set},
        netlink::Socket,
        read,
    },
};

/// What the table in the kernel is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableContent {
    /// There is none.
    Missing,
    /// There is one, and no service is in it.
    Empty,
    /// It has frontends of services.
    Services,
}

/// The content of the table of this network namespace. Needs CAP_NET_ADMIN.
///
/// # Errors
/// When it cannot be read.
pub fn table_content() -> Result<TableContent, InspectError> {
    let mut socket = Socket::open(&Linux::shared())?;
    if read::table_header(&mut socket)?.is_none() {
        return Ok(TableContent::Missing);
    }
    let existing = read::existing(&mut socket)?;
    let holds_frontends =
        |set: &Set| matches!(set.kind.form(), Form::Numbers { .. } | Form::Frontends { .. });
    for set in existing.shaped.into_iter().filter(holds_frontends) {
        if read::has_elements(&mut socket, set)? {
            return Ok(TableContent::Services);
        }
    }
    Ok(TableContent::Empty)
}
