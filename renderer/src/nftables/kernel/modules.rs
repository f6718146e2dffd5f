//! Determines which modules the kernel lacks, before anything is programmed.

use nix::libc::{ENOENT, EOPNOTSUPP, EPROTONOSUPPORT};

use crate::netlink::message::messages;
use crate::nftables::{
    layout::KernelModule,
    netlink::{
        Batch, NetlinkError, Refusal, Socket,
        constants::{NFNL_MSG_BATCH_BEGIN, NFNL_SUBSYS_NFTABLES},
    },
};

/// A table that exists only within the trial.
const TRIAL: &str = "contiv-trial";

/// The module that everything needs.
const CORE: &str = "nf_tables";

/// The optional modules that the kernel lacks.
///
/// # Errors
/// Also if a module is missing that all services need.
pub(crate) fn missing_optional(socket: &mut Socket) -> Result<Vec<KernelModule>, NetlinkError> {
    let mut batch = Batch::new();
    KernelModule::write_trial(&mut batch, TRIAL);
    let Err(error) = socket.commit(batch) else {
        return Ok(Vec::new());
    };
    let NetlinkError::Refused { refusals, .. } = &error else {
        return Err(error);
    };
    let Some(missing) = missing(refusals) else {
        return Err(error);
    };
    match missing {
        Missing::Core => Err(NetlinkError::MissingModules(vec![CORE])),
        Missing::Modules(modules) if modules.iter().all(|module| module.is_optional()) => {
            Ok(modules)
        }
        Missing::Modules(modules) => Err(NetlinkError::MissingModules(
            modules.into_iter().map(KernelModule::name).collect(),
        )),
    }
}

/// True if a missing module may be the reason of this error.
pub(crate) fn may_be_missing(error: &NetlinkError) -> bool {
    matches!(error.errno(), Some(ENOENT | EOPNOTSUPP))
}

/// The error of opening a socket, or that the kernel has no `nf_tables`: without netfilter it does not know the protocol.
pub(crate) fn explain_open_error(error: NetlinkError) -> NetlinkError {
    if error.errno() == Some(EPROTONOSUPPORT) {
        NetlinkError::MissingModules(vec![CORE])
    } else {
        error
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Missing {
    /// There is no nf_tables.
    Core,
    Modules(Vec<KernelModule>),
}

/// The missing modules, derived from the refused messages of the trial; none if any was refused for another reason.
fn missing(refusals: &[Refusal]) -> Option<Missing> {
    let mut modules = Vec::new();
    for refusal in refusals {
        if !matches!(refusal.errno, ENOENT | EOPNOTSUPP) {
            return None;
        }
        let message = messages(&refusal.message).next()?;
        let kind = message.kind;
        if kind == NFNL_MSG_BATCH_BEGIN {
            return Some(Missing::Core);
        }
        let object = message.object(NFNL_SUBSYS_NFTABLES)?;
        modules.push(KernelModule::needed_for(kind, object)?);
    }
    modules.sort_unstable();
    modules.dedup();
    (!modules.is_empty()).then_some(Missing::Modules(modules))
}
