//! The rules by which the kernel looks at our routes: at those for this node's own connections after all other rules, so
//! that a route of anybody else goes before ours; at those to backends before the main table. Source: the kernel's `include/uapi/linux/fib_rules.h`.

use rtnetlink::packet_route::{
    RouteNetlinkMessage,
    route::RouteProtocol,
    rule::{RuleAction, RuleAttribute, RuleHeader, RuleMessage},
};

use super::kernel_route::{PROTOCOL, family};

/// One behind the last rule that the kernel makes itself.
const LAST: u32 = 32_768;
/// One before the rule for the main table.
const BEFORE_MAIN: u32 = 32_765;

/// The rule of a family that points to the table with routes to backends: they go before all of the main table, whose
/// default route would lead elsewhere.
pub(super) fn direct_rule(ipv4: bool, table: u32) -> RuleMessage {
    let mut message = rule(ipv4, table);
    message.attributes.retain(|attribute| !matches!(attribute, RuleAttribute::Iifname(_)));
    for attribute in &mut message.attributes {
        if let RuleAttribute::Priority(priority) = attribute {
            *priority = BEFORE_MAIN;
        }
    }
    message
}

/// The rule of a family that points to the table for this node's own connections.
pub(super) fn rule(ipv4: bool, table: u32) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header =
        RuleHeader { family: family(ipv4), action: RuleAction::ToTable, ..RuleHeader::default() };
    message.attributes = vec![
        RuleAttribute::Table(table),
        RuleAttribute::Priority(LAST),
        // What passes through the node is none of its own connections.
        RuleAttribute::Iifname("lo".to_owned()),
        RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL)),
    ];
    message
}

/// The request for all rules of a family.
pub(super) fn dump_request(ipv4: bool) -> RouteNetlinkMessage {
    let mut message = RuleMessage::default();
    message.header.family = family(ipv4);
    RouteNetlinkMessage::GetRule(message)
}

/// Whether the rule is ours.
pub(super) fn is_ours(rule: &RuleMessage) -> bool {
    rule.attributes.contains(&RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL)))
}

/// Whether a rule that was found does what the wanted one does, and no more.
pub(super) fn is_same(found: &RuleMessage, wanted: &RuleMessage) -> bool {
    let narrows = |attribute: &RuleAttribute| {
        let says_nothing =
            matches!(attribute, RuleAttribute::SuppressPrefixLen(u32::MAX) | RuleAttribute::Other(_));
        !says_nothing && !wanted.attributes.contains(attribute)
    };
    found.header.family == wanted.header.family
        && found.header.action == wanted.header.action
        && (found.header.dst_len, found.header.src_len, found.header.tos) == (0, 0, 0)
        && wanted.attributes.iter().all(|attribute| found.attributes.contains(attribute))
        && !found.attributes.iter().any(narrows)
}

/// The table a rule points to.
pub(super) fn table(rule: &RuleMessage) -> u32 {
    let named = rule.attributes.iter().find_map(|attribute| match attribute {
        RuleAttribute::Table(table) => Some(*table),
        _ => None,
    });
    named.unwrap_or_else(|| rule.header.table.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_is_recognized_unless_narrowed_or_for_another_table() {
        let wanted = rule(true, 68);
        assert!(is_ours(&wanted) && is_same(&wanted, &wanted));
        assert_eq!(table(&wanted), 68);
        assert!(!is_same(&rule(true, 69), &wanted) && !is_same(&rule(false, 68), &wanted));
        let direct = direct_rule(true, 68);
        assert!(is_ours(&direct) && !is_same(&direct, &wanted) && !is_same(&wanted, &direct));
        let mut narrowed = wanted.clone();
        narrowed.attributes.push(RuleAttribute::Oifname("eth0".to_owned()));
        assert!(is_ours(&narrowed) && !is_same(&narrowed, &wanted));
        let mut foreign = wanted.clone();
        foreign.attributes.pop();
        assert!(!is_ours(&foreign));
    }
}
