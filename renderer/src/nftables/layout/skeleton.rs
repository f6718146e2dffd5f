//! The constant part of the table as netlink messages; `skeleton.nft` shows the same for people. A test compares the two.

use super::{
    Family, Hook, Set, SetKind, Sizes, TABLE,
    expression::{Expression, FIRST, Rule, after_address, after_frontend},
    hook::{FORWARD, INPUT, OUTPUT, POSTROUTING, PREROUTING, PRIORITY_DSTNAT, PRIORITY_SRCNAT, write_chain},
    set::write_protocols,
};
use crate::nftables::netlink::{
    Batch,
    constants::{msg, rule, table},
};

const TCP: u8 = 6;

/// One chain of the skeleton with its rules.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) name: &'static str,
    /// None for a chain that others jump to.
    pub(crate) hook: Option<Hook>,
    pub(super) rules: Vec<Rule>,
}

/// Adds the message that creates the table.
pub(crate) fn write_table(batch: &mut Batch, flags: u32) {
    batch.create(msg::NEWTABLE, "the table", |message| {
        message.text(table::NAME, TABLE);
        message.u32(table::FLAGS, flags);
    });
}

/// Adds the messages that create all sets, some of them with a size.
pub(crate) fn write_sets(batch: &mut Batch, sizes: &Sizes) {
    for set in Set::all() {
        let id = batch.new_set_id();
        set.write(batch, id, sizes.get(&set).copied());
    }
}

/// Adds the messages that create the chains.
pub(crate) fn write_chains(batch: &mut Batch) {
    for one in chains() {
        write_chain(batch, one.name, one.hook);
    }
}

/// Adds the messages that fill the chains, which must be empty, with their rules.
pub(crate) fn write_rules(batch: &mut Batch) {
    for one in chains() {
        write_rules_of(one.name, one.rules, batch);
    }
}

/// Adds the messages that append rules to a chain, with the anonymous sets that they need.
pub(super) fn write_rules_of(chain: &str, rules: Vec<Rule>, batch: &mut Batch) {
    for mut rule in rules {
        for expression in &mut rule {
            if let Expression::Protocols(id) = expression {
                *id = batch.new_set_id();
                write_protocols(batch, *id);
            }
        }
        batch.append(msg::NEWRULE, format!("rule of chain {chain}"), |message| {
            message.text(rule::TABLE, TABLE);
            message.text(rule::CHAIN, chain);
            message.nested(rule::EXPRESSIONS, |list| rule.iter().for_each(|one| one.write(list)));
        });
    }
}

/// The chains of the skeleton, in the order of `skeleton.nft`.
pub(crate) fn chains() -> Vec<Chain> {
    let tcp = Expression::Protocol(TCP);
    let mut chains = vec![plain(
        "reject-now",
        vec![
            vec![tcp.clone(), Expression::StatusConfirmed, Expression::Drop],
            vec![tcp, Expression::RejectTcpReset],
            vec![Expression::Reject],
        ],
    )];
    for family in Family::ALL {
        let names = names(family);
        chains.extend([
            plain(names.services, services(family, false, Some(names.node_ports))),
            plain(names.node_ports, services(family, true, None)),
            plain(names.check, check(family, false, Some(names.check_node_ports))),
            plain(names.check_node_ports, check(family, true, None)),
            plain(names.masquerade, masquerade(family)),
            plain(names.masquerade_external, masquerade_external(family, names.masquerade_node_ports)),
            plain(names.masquerade_node_ports, masquerade_node_ports(family)),
            plain(names.masquerade_egress, masquerade_egress(family)),
            plain(names.interfaces, closed(family, false, Some(names.interfaces_node_ports))),
            plain(names.interfaces_node_ports, closed(family, true, None)),
            plain(names.firewall, firewall(family)),
            plain(names.learn, learn(family, false, Some(names.learn_node_ports))),
            plain(names.learn_node_ports, learn(family, true, None)),
        ]);
    }
    let (v4, v6) = (names(Family::V4), names(Family::V6));
    let nat = |goto: &'static str, family| vec![Expression::Family(family), Expression::Goto(goto)];
    let dispatch = vec![nat(v4.services, Family::V4), nat(v6.services, Family::V6)];
    let source = |goto: &'static str, family| {
        vec![Expression::Family(family), Expression::StatusDnat, Expression::Goto(goto)]
    };
    let new = |family, then| vec![Expression::Family(family), Expression::StateNew, then];
    // Translated packets are accepted. So most packets of services pass after one rule.
    let passed = || vec![Expression::StatusDnat, Expression::Accept];
    let checks = || {
        vec![
            passed(),
            new(Family::V4, Expression::Jump(v4.check)),
            new(Family::V6, Expression::Jump(v6.check)),
            vec![Expression::StateNew, Expression::Goto("unknown-port")],
        ]
    };
    chains.extend([
        plain("unknown-port", [Family::ALL.map(unknown_port), Family::ALL.map(unallocated_address)].concat()),
        base("nat-prerouting", Hook::nat(PREROUTING, PRIORITY_DSTNAT), dispatch.clone()),
        base("nat-output", Hook::nat(OUTPUT, PRIORITY_DSTNAT), dispatch),
        base(
            "nat-postrouting",
            Hook::nat(POSTROUTING, PRIORITY_SRCNAT),
            vec![source(v4.masquerade, Family::V4), source(v6.masquerade, Family::V6)],
        ),
        base(
            "filter-input",
            Hook::filter(INPUT),
            vec![
                passed(),
                new(Family::V4, Expression::Goto(v4.check)),
                new(Family::V6, Expression::Goto(v6.check)),
            ],
        ),
        base("filter-forward", Hook::filter(FORWARD), checks()),
        base("filter-output", Hook::filter(OUTPUT), checks()),
    ]);
    chains
}

/// The names of the chains that exist once per family.
pub(super) struct ChainNames {
    services: &'static str,
    node_ports: &'static str,
    check: &'static str,
    check_node_ports: &'static str,
    masquerade: &'static str,
    pub(super) masquerade_external: &'static str,
    masquerade_node_ports: &'static str,
    pub(super) masquerade_egress: &'static str,
    pub(super) interfaces: &'static str,
    interfaces_node_ports: &'static str,
    pub(super) firewall: &'static str,
    pub(super) learn: &'static str,
    learn_node_ports: &'static str,
}

pub(super) const fn names(family: Family) -> ChainNames {
    match family {
        Family::V4 => ChainNames {
            services: "services-v4",
            node_ports: "node-ports-v4",
            check: "check-v4",
            check_node_ports: "check-node-ports-v4",
            masquerade: "masquerade-v4",
            masquerade_external: "masquerade-external-v4",
            masquerade_node_ports: "masquerade-node-ports-v4",
            masquerade_egress: "masquerade-egress-v4",
            interfaces: "interfaces-v4",
            interfaces_node_ports: "interfaces-node-ports-v4",
            firewall: "firewall-v4",
            learn: "learn-v4",
            learn_node_ports: "learn-node-ports-v4",
        },
        Family::V6 => ChainNames {
            services: "services-v6",
            node_ports: "node-ports-v6",
            check: "check-v6",
            check_node_ports: "check-node-ports-v6",
            masquerade: "masquerade-v6",
            masquerade_external: "masquerade-external-v6",
            masquerade_node_ports: "masquerade-node-ports-v6",
            masquerade_egress: "masquerade-egress-v6",
            interfaces: "interfaces-v6",
            interfaces_node_ports: "interfaces-node-ports-v6",
            firewall: "firewall-v6",
            learn: "learn-v6",
            learn_node_ports: "learn-node-ports-v6",
        },
    }
}

const fn plain(name: &'static str, rules: Vec<Rule>) -> Chain {
    Chain { name, hook: None, rules }
}

const fn base(name: &'static str, hook: Hook, rules: Vec<Rule>) -> Chain {
    Chain { name, hook: Some(hook), rules }
}

/// Goes to the chain that picks a backend of the frontend, or continues with node ports if the destination is an address of the
/// node.
fn services(family: Family, node_port: bool, node_ports: Option<&'static str>) -> Vec<Rule> {
    let pick = goto_numbered(SetKind::Services, SetKind::PickChains, family);
    let mut rules =
        vec![[vec![Expression::Family(family)], frontend(family, node_port), vec![pick]].concat()];
    rules.extend(node_ports.map(|chain| to_node_ip(family, chain)));
    rules
}

/// Refuses frontends that nothing serves, or continues with node ports.
fn check(family: Family, node_port: bool, node_ports: Option<&'static str>) -> Vec<Rule> {
    let rule = |(kind, then)| {
        let known = vec![Expression::In(Set::new(kind, family)), then];
        [vec![Expression::Family(family)], frontend(family, node_port), known].concat()
    };
    let mut verdicts = vec![
        (SetKind::NoEndpoints, Expression::Goto("reject-now")),
        (SetKind::NoLocalEndpoints, Expression::Drop),
    ];
    if !node_port {
        verdicts.push((SetKind::RoutedFrontends, Expression::Accept));
    }
    let mut rules: Vec<Rule> = verdicts.into_iter().map(rule).collect();
    rules.extend(node_ports.map(|chain| to_node_ip(family, chain)));
    rules
}

/// Goes to the chain whose number a map has for the key.
const fn goto_numbered(numbers: SetKind, chains: SetKind, family: Family) -> Expression {
    Expression::GotoNumbered(Set::new(numbers, family), Set::new(chains, family))
}

fn masquerade(family: Family) -> Vec<Rule> {
    vec![
        vec![
            Expression::Family(family),
            Expression::Saddr(family, FIRST),
            Expression::Daddr(family, after_address(family)),
            Expression::In(Set::new(SetKind::Hairpin, family)),
            Expression::Masquerade,
        ],
        vec![
            Expression::Family(family),
            Expression::Saddr(family, FIRST),
            Expression::NotIn(Set::new(SetKind::NoMasquerade, family)),
            Expression::Interface,
            Expression::NotIn(Set::new(SetKind::NoMasqueradeInterfaces, family)),
            Expression::OriginalDaddr(family, FIRST),
            Expression::In(Set::new(SetKind::ClusterIps, family)),
            Expression::Masquerade,
        ],
    ]
}

/// Packets to an address other than a cluster IP.
fn masquerade_external(family: Family, node_ports: &'static str) -> Vec<Rule> {
    let always = Expression::In(Set::new(SetKind::MasqueradeAlways, family));
    vec![
        [original_frontend(family, false), vec![always, Expression::Masquerade]].concat(),
        to_original_node_ip(family, node_ports),
        [from_node(family), original_frontend(family, false), masquerade_local(family)].concat(),
    ]
}

/// Packets to an address of the node: to a node port, or to an external address that the node has.
fn masquerade_node_ports(family: Family) -> Vec<Rule> {
    let always = Expression::In(Set::new(SetKind::MasqueradeAlways, family));
    vec![
        [original_frontend(family, true), vec![always, Expression::Masquerade]].concat(),
        [from_node(family), original_frontend(family, false), masquerade_local(family)].concat(),
        [from_node(family), original_frontend(family, true), masquerade_local(family)].concat(),
    ]
}

/// The rules for connections of this node's pods to destinations outside the cluster.
fn masquerade_egress(family: Family) -> Vec<Rule> {
    let accept_to = |kind| {
        let to = Expression::In(Set::new(kind, family));
        vec![Expression::Family(family), Expression::Daddr(family, FIRST), to, Expression::Accept]
    };
    let pods = Expression::In(Set::new(SetKind::Pods, family));
    let interfaces = Expression::In(Set::new(SetKind::PodInterfaces, family));
    vec![
        accept_to(SetKind::NonMasqueradeCidrs),
        accept_to(SetKind::Routed),
        vec![Expression::Family(family), Expression::Saddr(family, FIRST), pods, Expression::Masquerade],
        vec![Expression::Interface, interfaces, Expression::Masquerade],
    ]
}

/// Drops what is for a service: its cluster IP, or a frontend that the sets for masquerading name, as they do all others.
fn closed(family: Family, node_port: bool, node_ports: Option<&'static str>) -> Vec<Rule> {
    let cluster_ip = vec![
        Expression::Family(family),
        Expression::Daddr(family, FIRST),
        Expression::In(Set::new(SetKind::ClusterIps, family)),
        Expression::Drop,
    ];
    let mut rules = if node_port { Vec::new() } else { vec![cluster_ip] };
    rules.extend([SetKind::MasqueradeAlways, SetKind::MasqueradeLocal].map(|kind| {
        let known = vec![Expression::In(Set::new(kind, family)), Expression::Drop];
        [vec![Expression::Family(family)], frontend(family, node_port), known].concat()
    }));
    rules.extend(node_ports.map(|chain| to_node_ip(family, chain)));
    rules
}

fn masquerade_local(family: Family) -> Rule {
    vec![Expression::In(Set::new(SetKind::MasqueradeLocal, family)), Expression::Masquerade]
}

fn unknown_port(family: Family) -> Rule {
    vec![
        Expression::Family(family),
        Expression::Daddr(family, FIRST),
        Expression::In(Set::new(SetKind::ClusterIps, family)),
        Expression::Goto("reject-now"),
    ]
}

fn unallocated_address(family: Family) -> Rule {
    vec![
        Expression::Family(family),
        Expression::Daddr(family, FIRST),
        Expression::In(Set::new(SetKind::ServiceCidrs, family)),
        Expression::Drop,
    ]
}

fn firewall(family: Family) -> Vec<Rule> {
    let restricted = Expression::In(Set::new(SetKind::Restricted, family));
    let allowed = Expression::NotIn(Set::new(SetKind::SourceRanges, family));
    let rule = |node_port| {
        let mut rule = vec![Expression::Family(family)];
        if node_port {
            rule.push(Expression::Daddr(family, FIRST));
            rule.push(Expression::In(Set::new(SetKind::NodeIps, family)));
        }
        rule.extend(frontend(family, node_port));
        rule.push(restricted.clone());
        rule.extend(tracked_frontend(family, node_port));
        rule.extend([Expression::Saddr(family, after_frontend(family)), allowed.clone(), Expression::Drop]);
        rule
    };
    vec![rule(false), rule(true)]
}

fn learn(family: Family, node_port: bool, node_ports: Option<&'static str>) -> Vec<Rule> {
    let remember = goto_numbered(SetKind::Sticky, SetKind::LearnChains, family);
    let mut rules = vec![[original_frontend(family, node_port), vec![remember]].concat()];
    rules.extend(node_ports.map(|chain| to_original_node_ip(family, chain)));
    rules
}

/// The client is neither a pod of this node nor the node itself.
pub(super) fn from_outside(family: Family) -> Rule {
    vec![
        Expression::Family(family),
        Expression::Saddr(family, FIRST),
        Expression::NotIn(Set::new(SetKind::Pods, family)),
        Expression::Interface,
        Expression::NotIn(Set::new(SetKind::PodInterfaces, family)),
        Expression::SaddrLocal(false),
    ]
}

/// The client is the node itself, and its address is not in a pod range.
fn from_node(family: Family) -> Rule {
    vec![
        Expression::Family(family),
        Expression::Saddr(family, FIRST),
        Expression::NotIn(Set::new(SetKind::Pods, family)),
        Expression::SaddrLocal(true),
    ]
}

/// Address, protocol and port of the packet.
fn frontend(family: Family, node_port: bool) -> Rule {
    frontend_key(family, node_port, Expression::L4Proto(after_address(family)))
}

/// The same for the key of an interval set: nft up to 1.0.6 converts the byte order of `meta l4proto` there, which hardened
/// kernels refuse for a single byte, but leaves conntrack's protocol as it is.
fn tracked_frontend(family: Family, node_port: bool) -> Rule {
    frontend_key(family, node_port, Expression::ConntrackProtocol(after_address(family)))
}

fn frontend_key(family: Family, node_port: bool, protocol: Expression) -> Rule {
    let mut key = vec![Expression::Daddr(family, FIRST)];
    if node_port {
        key.push(Expression::MaskAway(family, FIRST));
    }
    key.extend([protocol, Expression::Dport(after_address(family) + 1)]);
    key
}

/// Address, protocol and port of the connection's first packet, for protocols with ports.
fn original_frontend(family: Family, node_port: bool) -> Rule {
    [vec![Expression::Protocols(0)], original_key(family, node_port)].concat()
}

/// The key of the frontend that the connection's first packet was sent to.
pub(super) fn original_key(family: Family, node_port: bool) -> Rule {
    let protocol = after_address(family);
    let mut key = vec![Expression::OriginalDaddr(family, FIRST)];
    if node_port {
        key.push(Expression::MaskAway(family, FIRST));
    }
    key.extend([Expression::L4Proto(protocol), Expression::OriginalDport(protocol + 1)]);
    key
}

fn to_node_ip(family: Family, chain: &'static str) -> Rule {
    vec![
        Expression::Family(family),
        Expression::Daddr(family, FIRST),
        Expression::In(Set::new(SetKind::NodeIps, family)),
        Expression::Goto(chain),
    ]
}

/// The connection's first packet was sent to an address of the node.
fn to_original_node_ip(family: Family, chain: &'static str) -> Rule {
    vec![
        Expression::OriginalDaddr(family, FIRST),
        Expression::In(Set::new(SetKind::NodeIps, family)),
        Expression::Goto(chain),
    ]
}
