//! The rules that select our routing tables. That for this node's own connections comes after all other rules, so that foreign
//! routes win; that for backends comes before the main table. Source: the kernel's `include/uapi/linux/fib_rules.h`.

use rtnetlink::packet_route::{
    RouteNetlinkMessage,
    route::RouteProtocol,
    rule::{RuleAction, RuleAttribute, RuleHeader, RuleMessage},
};

use super::kernel_route::{PROTOCOL, family};

/// One after the last default rule of the kernel.
const AFTER_DEFAULT_RULES: u32 = 32_768;
/// One before the rule of the main table.
const BEFORE_MAIN: u32 = 32_765;

/// The rule of a family for the table with routes to backends: it comes before the main table, whose default route would win
/// otherwise.
pub(super) fn direct_rule(ipv4: bool, table: u32) -> RuleMessage {
    let mut message = rule(ipv4, table);
    message
        .attributes
        .retain(|attribute| !matches!(attribute, RuleAttribute::Iifname(_)));
    for attribute in &mut message.attributes {
        if let RuleAttribute::Priority(priority) = attribute {
            *priority = BEFORE_MAIN;
        }
    }
    message
}

/// The rule of a family for the table of this node's own connections.
pub(super) fn rule(ipv4: bool, table: u32) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header = RuleHeader {
        family: family(ipv4),
        action: RuleAction::ToTable,
        ..RuleHeader::default()
    };
    message.attributes = vec![
        RuleAttribute::Table(table),
        RuleAttribute::Priority(AFTER_DEFAULT_RULES),
        // Forwarded packets are not the node's own connections.
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

/// True if the rule is ours.
pub(super) fn is_ours(rule: &RuleMessage) -> bool {
    rule.attributes
        .contains(&RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL)))
}

/// True if an existing rule does exactly the same as the desired one.
pub(super) fn is_same(found: &RuleMessage, desired: &RuleMessage) -> bool {
    let narrows = |attribute: &RuleAttribute| {
        let says_nothing = matches!(
            attribute,
            RuleAttribute::SuppressPrefixLen(u32::MAX) | RuleAttribute::Other(_)
        );
        !says_nothing && !desired.attributes.contains(attribute)
    };
    found.header.family == desired.header.family
        && found.header.action == desired.header.action
        && (found.header.dst_len, found.header.src_len, found.header.tos) == (0, 0, 0)
        && desired
            .attributes
            .iter()
            .all(|attribute| found.attributes.contains(attribute))
        && !found.attributes.iter().any(narrows)
}

/// The table of a rule.
pub(super) fn table(rule: &RuleMessage) -> u32 {
    let named = rule
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
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
        let desired = rule(true, 68);
        assert!(is_ours(&desired) && is_same(&desired, &desired));
        assert_eq!(table(&desired), 68);
        assert_eq!(desired.header.action, RuleAction::ToTable);
        assert!(!is_same(&rule(true, 69), &desired) && !is_same(&rule(false, 68), &desired));
        let direct = direct_rule(true, 68);
        assert!(is_ours(&direct) && !is_same(&direct, &desired) && !is_same(&desired, &direct));
        let mut narrowed = desired.clone();
        narrowed
            .attributes
            .push(RuleAttribute::Oifname("eth0".to_owned()));
        assert!(is_ours(&narrowed) && !is_same(&narrowed, &desired));
        let mut foreign = desired.clone();
        foreign.attributes.pop();
        assert!(!is_ours(&foreign));
    }
}
