//! Validates that jumps between chains have no loops, and that expressions are in allowed hooks: `nft_chain_validate`.

use std::collections::BTreeSet;

use super::{
    data::{Data, Handle},
    errno::{Errno, Refusal, Result, refuse},
    expression::Expression,
    ruleset::{Base, ChainType, Table, hook},
    uapi::{data, expr, set},
};

/// The maximum depth of jumps: `NFT_JUMP_STACK_SIZE`.
const MAX_JUMP_DEPTH: usize = 16;

/// Validates all chains reachable from base chains: `nft_table_validate`.
pub(super) fn table(table: &Table) -> Result<()> {
    let bases = table.chains.values().filter(|chain| chain.base.is_some());
    bases
        .map(|base| base.handle)
        .try_for_each(|base| chain(table, base, base, 0))
}

/// Validates all chains reachable from `of`, for packets from the base chain `from`.
pub(super) fn chain(table: &Table, from: Handle, of: Handle, depth: usize) -> Result<()> {
    if depth == MAX_JUMP_DEPTH {
        return refuse(Errno::EMLINK);
    }
    let Some(of) = table.chains.get(&of) else {
        return Ok(());
    };
    for expression in of.rules.iter().flat_map(|rule| &rule.expressions) {
        self::expression(table, from, expression, depth)?;
    }
    Ok(())
}

fn expression(table: &Table, from: Handle, expression: &Expression, depth: usize) -> Result<()> {
    let base = table.chains.get(&from).and_then(|chain| chain.base);
    match expression {
        Expression::Immediate { data, .. } => follow(table, from, data, depth),
        Expression::Lookup { set: handle, .. } => {
            let Some(found) = table.sets.get(handle) else {
                return Ok(());
            };
            if !found.has(set::F_MAP) || found.declaration.data_type != data::TYPE_VERDICT {
                return Ok(());
            }
            // Most elements of a map lead to the same few chains.
            let data = found
                .elements
                .iter()
                .filter_map(|element| element.data.as_ref());
            let targets: BTreeSet<Handle> = data.filter_map(Data::chain).collect();
            targets
                .into_iter()
                .try_for_each(|to| chain(table, from, to, depth + 1))
        }
        Expression::Nat { kind, .. } => {
            is_nat(base)?;
            let last = if *kind == expr::NAT_DNAT {
                hook::OUTPUT
            } else {
                hook::POSTROUTING
            };
            let other = if *kind == expr::NAT_DNAT {
                hook::PREROUTING
            } else {
                hook::INPUT
            };
            hangs_at(base, &[last, other])
        }
        Expression::Masquerade { .. } => {
            is_nat(base)?;
            hangs_at(base, &[hook::POSTROUTING])
        }
        Expression::Redirect { .. } => {
            is_nat(base)?;
            hangs_at(base, &[hook::PREROUTING, hook::OUTPUT])
        }
        Expression::Reject { .. } => hangs_at(
            base,
            &[hook::PREROUTING, hook::INPUT, hook::FORWARD, hook::OUTPUT],
        ),
        _ => Ok(()),
    }
}

fn follow(table: &Table, from: Handle, data: &Data, depth: usize) -> Result<()> {
    data.chain()
        .map_or(Ok(()), |to| chain(table, from, to, depth + 1))
}

/// `nft_chain_validate_dependency`
fn is_nat(base: Option<Base>) -> Result<()> {
    match base {
        Some(base) if base.kind != ChainType::Nat => Err(Refusal::from(Errno::EOPNOTSUPP)),
        _ => Ok(()),
    }
}

/// `nft_chain_validate_hooks`
fn hangs_at(base: Option<Base>, hooks: &[u32]) -> Result<()> {
    match base {
        Some(base) if !hooks.contains(&base.hook) => Err(Refusal::from(Errno::EOPNOTSUPP)),
        _ => Ok(()),
    }
}
