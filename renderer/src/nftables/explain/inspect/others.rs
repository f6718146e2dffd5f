//! The base chains of other tables on the path of a connection. They belong to other programs, but may be
//! the reason of a lost packet: so they are listed, with whether they drop packets.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use serde::Serialize;

use crate::nftables::{
    layout::{OWN_TABLES, hook_name::hook_name},
    netlink::{
        Attributes, NetlinkError, Socket,
        constants::{
            NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6, chain, data, expr, msg, rule, verdict,
        },
    },
};

/// A base chain of another table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OtherChain {
    /// Family and name of its table, as nft takes them.
    pub table: String,
    /// Its name.
    pub chain: String,
    /// Its hook.
    pub hook: String,
    /// Its priority: lower ones come first.
    pub priority: i32,
    /// Its policy is drop.
    pub drops_by_policy: bool,
    /// The number of rules of its table that drop or reject, in this chain or in another.
    pub dropping_rules: usize,
}

impl fmt::Display for OtherChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            table,
            chain,
            hook,
            priority,
            ..
        } = self;
        write!(
            f,
            "{hook:<12} {priority:>5}  table {table}, chain {chain}: "
        )?;
        match (self.drops_by_policy, self.dropping_rules) {
            (false, 0) => write!(f, "drops nothing"),
            (true, 0) => write!(f, "drops by its policy"),
            (false, rules) => write!(f, "{} of its table may drop or reject", counted(rules)),
            (true, rules) => {
                write!(
                    f,
                    "drops by its policy, and {} of its table may drop or reject",
                    counted(rules)
                )
            }
        }
    }
}

fn counted(rules: usize) -> String {
    format!("{rules} rule{}", if rules == 1 { "" } else { "s" })
}

/// Hooks of the family inet. The last number is that of ingress, which comes first.
const INET_HOOKS: u32 = 6;

/// Foreign base chains that packets of this family pass, ordered by hook and priority.
pub(super) fn others(
    socket: &mut Socket,
    address: IpAddr,
) -> Result<Vec<OtherChain>, NetlinkError> {
    let own_family = if address.is_ipv4() {
        NFPROTO_IPV4
    } else {
        NFPROTO_IPV6
    };
    let is_passed = |family: u8, table: &str| {
        (family == NFPROTO_INET && !OWN_TABLES.contains(&table)) || family == own_family
    };
    let mut chains = BTreeMap::new();
    socket.pass_families(msg::GETCHAIN, |family, object| {
        let found = (
            object.text(chain::TABLE),
            object.text(chain::NAME),
            object.nested(chain::HOOK),
        );
        if let (Some(table), Some(name), Some(hook)) = found
            && is_passed(family, table)
        {
            let number = hook.u32(chain::HOOK_HOOKNUM).unwrap_or_default();
            let priority = hook
                .u32(chain::HOOK_PRIORITY)
                .unwrap_or_default()
                .cast_signed();
            let policy = object.u32(chain::POLICY).unwrap_or(chain::POLICY_ACCEPT);
            let other = OtherChain {
                table: format!("{} {table}", family_name(family)),
                chain: name.to_owned(),
                hook: hook_name(number),
                priority,
                drops_by_policy: policy != chain::POLICY_ACCEPT,
                dropping_rules: 0,
            };
            chains.insert(
                (
                    (number + 1) % INET_HOOKS,
                    priority,
                    other.table.clone(),
                    other.chain.clone(),
                ),
                other,
            );
        }
    })?;
    if chains.is_empty() {
        return Ok(Vec::new());
    }
    let mut dropping: BTreeMap<String, usize> = BTreeMap::new();
    socket.pass_families(msg::GETRULE, |family, object| {
        if let Some(table) = object
            .text(rule::TABLE)
            .filter(|table| is_passed(family, table))
        {
            let expressions = object.nested(rule::EXPRESSIONS);
            let drops = expressions.into_iter().flat_map(Attributes::iter);
            if drops
                .into_iter()
                .any(|(_, expression)| drops_packets(Attributes(expression)))
            {
                *dropping
                    .entry(format!("{} {table}", family_name(family)))
                    .or_default() += 1;
            }
        }
    })?;
    let counted = chains.into_values().map(|chain| OtherChain {
        dropping_rules: dropping.get(&chain.table).copied().unwrap_or_default(),
        ..chain
    });
    Ok(counted.collect())
}

fn family_name(family: u8) -> &'static str {
    match family {
        NFPROTO_IPV4 => "ip",
        NFPROTO_IPV6 => "ip6",
        _ => "inet",
    }
}

/// A verdict to drop, or one of the ways to reject, including those of iptables.
fn drops_packets(expression: Attributes<'_>) -> bool {
    let of = || expression.nested(rule::EXPR_DATA);
    match expression.text(rule::EXPR_NAME) {
        Some("reject") => true,
        Some("target") => of()
            .and_then(|of| of.text(expr::TARGET_NAME))
            .is_some_and(|name| name == "REJECT"),
        Some("immediate") => {
            let verdict =
                of().and_then(|of| of.nested(expr::IMMEDIATE_DATA)?.nested(data::VERDICT));
            let code = verdict.and_then(|verdict| verdict.u32(data::VERDICT_CODE));
            code.is_some_and(|code| code.cast_signed() == verdict::DROP)
        }
        _ => false,
    }
}
