//! Errors of the kernel with advice.

use super::netlink::NetlinkError;
use crate::RenderError;

/// Turns the kernel's error into one with advice.
pub(super) fn explain(action: &str, error: &NetlinkError) -> RenderError {
    const EPERM: i32 = 1;
    let hint = if error.errno() == Some(EPERM) { "; run as root or with CAP_NET_ADMIN" } else { "" };
    match error {
        NetlinkError::MissingModules(modules) => RenderError::MissingModules { modules: modules.clone() },
        _ => RenderError::Kernel { action: action.to_owned(), reason: format!("{error}{hint}") },
    }
}
