//! The kernel modules that the table needs besides `nf_tables` itself.
//!
//! The kernel loads a module when a chain type or an expression needs it. A missing one causes "No such file or directory" or
//! "Operation not supported", without its name; so a trial table needs one module in each chain. Source: the aliases
//! `nft-chain-…` and `nft-expr-…` in the kernel's `net/netfilter`.

use super::{
    Family, Field, Hook,
    bytecode::write_statements,
    hook::{PREROUTING, PRIORITY_DSTNAT, write_chain_of},
    rule::{
        Comparison::Is,
        Constant, Flag,
        Statement::{self, Counter, Dnat, Masquerade, Match, MatchAny, Reject},
    },
};
use crate::netlink::message::kind_of;
use crate::nftables::netlink::{
    Attributes, Batch,
    constants::{NFNL_SUBSYS_NFTABLES, chain, msg, rule, table},
};

/// A module of the kernel that the table needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KernelModule {
    ChainNat,
    Counter,
    Ct,
    FibInet,
    Hash,
    Masq,
    Nat,
    Numgen,
    RejectInet,
}

impl KernelModule {
    pub(crate) const ALL: [Self; 9] = [
        Self::ChainNat,
        Self::Counter,
        Self::Ct,
        Self::FibInet,
        Self::Hash,
        Self::Masq,
        Self::Nat,
        Self::Numgen,
        Self::RejectInet,
    ];

    /// Its name, as `modprobe` takes it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ChainNat => "nft_chain_nat",
            Self::Counter => "nft_counter",
            Self::Ct => "nft_ct",
            Self::FibInet => "nft_fib_inet",
            Self::Hash => "nft_hash",
            Self::Masq => "nft_masq",
            Self::Nat => "nft_nat",
            Self::Numgen => "nft_numgen",
            Self::RejectInet => "nft_reject_inet",
        }
    }

    /// True if only services with a choice by client address need it.
    pub(crate) const fn is_optional(self) -> bool {
        matches!(self, Self::Hash)
    }

    /// A statement that needs it; none if its base chain does.
    fn statement(self) -> Option<Statement> {
        const V4: Family = Family::V4;
        Some(match self {
            Self::ChainNat => return None,
            Self::Counter => Counter,
            Self::Ct => MatchAny(&[Flag::StateNew]),
            Self::FibInet => Match(Field::SaddrType, Is, Constant::Local),
            Self::Hash => Match(Field::ClientHash(V4, 2), Is, Constant::Number(0)),
            Self::Masq => Masquerade,
            Self::Nat => Dnat(V4, vec![Field::Daddr(V4), Field::Dport], None),
            Self::Numgen => Match(Field::Random(2), Is, Constant::Number(0)),
            Self::RejectInet => Reject,
        })
    }

    /// Adds the messages that create a table with one chain per module, named after it, and that remove the table again.
    pub(crate) fn write_trial(batch: &mut Batch, name: &'static str) {
        batch.create(
            msg::NEWTABLE,
            "a table to try which modules the kernel has",
            |message| {
                message.text(table::NAME, name);
            },
        );
        for module in Self::ALL {
            let hook = (module == Self::ChainNat).then_some(Hook::nat(PREROUTING, PRIORITY_DSTNAT));
            write_chain_of(batch, name, module.name(), hook);
            let Some(statement) = module.statement() else {
                continue;
            };
            batch.append(msg::NEWRULE, module.name(), |message| {
                message.text(rule::TABLE, name);
                message.text(rule::CHAIN, module.name());
                message.nested(rule::EXPRESSIONS, |list| {
                    write_statements(&[statement], 0, list);
                });
            });
        }
        batch.delete(msg::DELTABLE, "that table", |message| {
            message.text(table::NAME, name);
        });
    }

    /// The module that a message of [`Self::write_trial`] needs.
    pub(crate) fn needed_for(kind: u16, object: Attributes<'_>) -> Option<Self> {
        let is = |of: u8| kind == kind_of(NFNL_SUBSYS_NFTABLES, of);
        let name = match () {
            () if is(msg::NEWCHAIN) => object.text(chain::NAME)?,
            () if is(msg::NEWRULE) => object.text(rule::CHAIN)?,
            () => return None,
        };
        Self::ALL.into_iter().find(|module| module.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_loads_every_module_that_all_services_need() {
        let file = include_str!("../../../../systemd/modules-load.d/contiv.conf");
        let lines = file.lines().filter(|line| !line.starts_with('#'));
        // The first two belong to no expression. Counters are a part of nf_tables in newer kernels, and what only some services need
        // may be missing: systemd would report a module that it does not find at each boot.
        let is_loaded =
            |module: &KernelModule| *module != KernelModule::Counter && !module.is_optional();
        let modules = KernelModule::ALL.into_iter().filter(is_loaded);
        let desired = ["nf_tables", "nf_conntrack_netlink"]
            .into_iter()
            .chain(modules.map(KernelModule::name));
        assert_eq!(lines.collect::<Vec<_>>(), desired.collect::<Vec<_>>());
    }
}
