//! Packets that are followed through rulesets in memory.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use contiv_model::{InterfaceName, Protocol};
use proptest::prelude::*;

use super::{
    AddressKind, Hook, Network, OwnVerdict, Packet, PathError, Route, RouteQuery, SizeError,
    StopKind, Walk, WalkEnd, WalkStep, follow,
    lookups::{RuleLookups, SetElement},
    ruleset::{
        ChainKind::{Filter, Nat, Route as RouteChain},
        Data, Expression, Ruleset, SetRef, Verdict,
        testing::{
            Encoded, accept, drop_packet, equals, expression, jump, load, look_up, payload,
            port_is, set_mark, statement, translate_destination, value, verdict,
        },
    },
};
use crate::{
    netlink::Attributes,
    nftables::{
        TABLE,
        netlink::constants::{LIST_ELEM, expr, rule, verdict as verdict_number},
    },
};

const CLIENT: &str = "10.1.0.2:40000";
const SERVER: &str = "10.2.0.2:80";
const BACKEND: &str = "10.3.0.3:8080";
const NODE: &str = "10.1.0.1";
/// Packets with this mark have no route.
const MARK_WITHOUT_ROUTE: u32 = 7;

/// A node with an interface for each of three networks; packets with a certain mark have no route.
struct Node;

impl Network for Node {
    fn route(&mut self, query: &RouteQuery) -> Result<Route, PathError> {
        if query.mark == MARK_WITHOUT_ROUTE {
            return Ok(Route::Unreachable);
        }
        let IpAddr::V4(address) = query.destination else {
            return Ok(Route::Unreachable);
        };
        let [_, network, _, host] = address.octets();
        Ok(if host == 1 {
            Route::Local
        } else {
            Route::Unicast {
                interface: InterfaceName::new(format!("eth{network}")),
                gateway: None,
                source: Some(ip(&format!("10.{network}.0.1"))),
                mtu: None,
            }
        })
    }

    fn address_kind(&mut self, address: IpAddr) -> Result<AddressKind, PathError> {
        Ok(if address == ip(NODE) {
            AddressKind::Local
        } else {
            AddressKind::Unicast
        })
    }
}

/// Elements of sets, by set and key.
#[derive(Default)]
struct Elements(BTreeMap<(String, Vec<u8>), Data>);

impl RuleLookups for Elements {
    fn find_element(
        &mut self,
        set: SetRef<'_>,
        key: &[u8],
    ) -> Result<Option<SetElement>, PathError> {
        let data = self.0.get(&(set.set.to_owned(), key.to_vec()));
        Ok(data.map(|data| SetElement {
            data: data.clone(),
            limits: Vec::new(),
        }))
    }

    fn list_elements(&mut self, set: SetRef<'_>) -> Result<Option<Vec<Data>>, PathError> {
        let of_set = self.0.iter().filter(|((name, _), _)| *name == set.set);
        Ok(Some(of_set.map(|(_, data)| data.clone()).collect()))
    }

    fn interface_index(&mut self, _name: &InterfaceName) -> Option<u32> {
        None
    }

    fn interface_address(&mut self, _name: &InterfaceName, _is_v4: bool) -> Option<IpAddr> {
        Some(ip(NODE))
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn end(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A packet that comes in by `eth1`, or that this node sends.
fn packet(source: &str, destination: &str) -> Packet {
    let source = end(source);
    Packet {
        protocol: Protocol::Tcp,
        source,
        destination: end(destination),
        input: (source.ip() != ip(NODE)).then(|| InterfaceName::new("eth1")),
    }
}

fn forwarded() -> Packet {
    packet(CLIENT, SERVER)
}

fn walk(ruleset: &Ruleset, packet: &Packet, own: OwnVerdict) -> Walk {
    follow::walk_first(ruleset, packet, own, &mut Node, &mut Elements::default()).unwrap()
}

fn answer(ruleset: &Ruleset, packet: &Packet, first: &Walk) -> Option<Walk> {
    let lookups = &mut Elements::default();
    follow::walk_answer(ruleset, packet, first, &mut Node, lookups).unwrap()
}

fn table() -> Ruleset {
    Ruleset::default().with_table("t")
}

fn rule(parts: impl IntoIterator<Item = Encoded>) -> Vec<Encoded> {
    parts.into_iter().collect()
}

fn port_then(port: u16, effect: Encoded) -> Vec<Encoded> {
    rule(port_is(port).into_iter().chain([effect]))
}

fn translates() -> OwnVerdict {
    OwnVerdict::Translated {
        backend: end(BACKEND),
        is_masqueraded: true,
    }
}

/// The ends of a packet that leaves.
fn sent(walk: &Walk) -> Option<(SocketAddr, SocketAddr)> {
    match &walk.end {
        WalkEnd::Sent {
            source,
            destination,
            ..
        } => Some((*source, *destination)),
        _ => None,
    }
}

/// The number of the rule that stops a packet; 0 for a policy.
fn stopped(walk: &Walk) -> Option<(u64, StopKind)> {
    match &walk.end {
        WalkEnd::Stopped { by, kind } => Some((by.handle.unwrap_or(0), *kind)),
        _ => None,
    }
}

fn own_steps(walk: &Walk) -> Vec<(Hook, bool)> {
    let steps = walk.steps.iter().filter_map(|step| match step {
        WalkStep::OwnTable { hook, is_overruled } => Some((*hook, *is_overruled)),
        _ => None,
    });
    steps.collect()
}

/// The agent's table, with its chains of nat.
fn with_own_table(ruleset: Ruleset) -> Ruleset {
    [
        (Hook::Prerouting, -101),
        (Hook::Output, -101),
        (Hook::Postrouting, 99),
        // The agent has chains on demand beside.
        (Hook::Postrouting, 98),
    ]
    .into_iter()
    .fold(ruleset.with_table(TABLE), |ruleset, (hook, priority)| {
        ruleset.with_base(Nat, hook, priority, &[])
    })
}

#[test]
fn forward_verdict_of_first_matching_rule_decides() {
    let rules = |rules: &[Vec<Encoded>]| table().with_base(Filter, Hook::Forward, 0, rules);
    let cases = [
        (rules(&[rule([drop_packet()])]), Some((1, StopKind::Drops))),
        (
            rules(&[port_then(81, drop_packet()), rule([statement("reject")])]),
            Some((2, StopKind::Rejects)),
        ),
        (
            rules(&[port_then(80, accept()), rule([drop_packet()])]),
            None,
        ),
        (rules(&[]).that_drops(), Some((0, StopKind::Drops))),
        (rules(&[rule([accept()])]).that_drops(), None),
        (
            rules(&[rule([verdict(verdict_number::RETURN, "")])]).that_drops(),
            Some((0, StopKind::Drops)),
        ),
        (
            rules(&[rule([statement("queue")])]),
            Some((1, StopKind::Queues)),
        ),
        (
            rules(&[rule([statement("tproxy")])]),
            Some((1, StopKind::Diverts)),
        ),
    ];
    for (number, (ruleset, expected)) in cases.iter().enumerate() {
        let walk = walk(ruleset, &forwarded(), OwnVerdict::Untouched);
        assert_eq!(stopped(&walk), *expected, "case {number}: {walk:?}");
        assert_eq!(walk.doubts, []);
    }
}

#[test]
fn jump_returns_and_goto_does_not() {
    let back = |first: i32| {
        table()
            .with_chain("sub", &[rule([statement("counter")])])
            .with_base(
                Filter,
                Hook::Forward,
                0,
                &[rule([verdict(first, "sub")]), rule([drop_packet()])],
            )
    };
    let drops = walk(
        &back(verdict_number::JUMP),
        &forwarded(),
        OwnVerdict::Untouched,
    );
    assert_eq!(stopped(&drops), Some((2, StopKind::Drops)));
    let passes = walk(
        &back(verdict_number::GOTO),
        &forwarded(),
        OwnVerdict::Untouched,
    );
    assert_eq!(stopped(&passes), None);
}

#[test]
fn priority_that_a_rule_sets_is_known_to_the_next() {
    let set_priority = |priority: u32| {
        let set = expression("meta", |message| {
            message.u32(expr::META_KEY, expr::META_PRIORITY);
            message.u32(expr::META_SREG, 1);
        });
        rule([value(&priority.to_ne_bytes()), set])
    };
    let drops_7 = rule([
        load("meta", expr::META_PRIORITY),
        equals(&7_u32.to_ne_bytes()),
        drop_packet(),
    ]);
    for (first, is_dropped, has_doubt) in [
        (set_priority(7), true, false),
        (set_priority(8), false, false),
        (rule([statement("counter")]), false, true),
    ] {
        let rules = [first, drops_7.clone()];
        let ruleset = table().with_base(Filter, Hook::Forward, 0, &rules);
        let walk = walk(&ruleset, &forwarded(), OwnVerdict::Untouched);
        assert_eq!(stopped(&walk).is_some(), is_dropped, "{walk:?}");
        assert_eq!(!walk.doubts.is_empty(), has_doubt, "{walk:?}");
    }
}

#[test]
fn loop_of_chains_is_an_error() {
    let ruleset = table().with_chain("a", &[rule([jump("a")])]).with_base(
        Filter,
        Hook::Forward,
        0,
        &[rule([jump("a")])],
    );
    let lookups = &mut Elements::default();
    let walked = follow::walk_first(
        &ruleset,
        &forwarded(),
        OwnVerdict::Untouched,
        &mut Node,
        lookups,
    );
    assert!(walked.is_err());
}

#[test]
fn chains_are_passed_in_order_of_hook_and_priority() {
    let ruleset = table()
        .with_base(Filter, Hook::Postrouting, -5, &[])
        .with_base(Filter, Hook::Forward, 10, &[])
        .with_base(Filter, Hook::Forward, -10, &[])
        .with_base(Filter, Hook::Input, 0, &[])
        .with_base(Nat, Hook::Prerouting, 300, &[])
        .with_base(Filter, Hook::Prerouting, 0, &[])
        .with_base(Filter, Hook::Prerouting, -300, &[]);
    let walk = walk(&ruleset, &forwarded(), OwnVerdict::Untouched);
    let passed = walk.steps.iter().filter_map(|step| match step {
        WalkStep::Passed(chain) => Some(chain.chain.as_str()),
        WalkStep::Routed(_) => Some("route"),
        _ => None,
    });
    let expected = [
        "prerouting-300",
        "prerouting300",
        "prerouting0",
        "route",
        "forward-10",
        "forward10",
        "postrouting-5",
    ];
    assert_eq!(passed.collect::<Vec<_>>(), expected);
}

#[test]
fn own_table_translates_unless_it_was_overruled() {
    let other = |priority| {
        let nat = translate_destination([10, 2, 0, 9], 90);
        table().with_base(Nat, Hook::Prerouting, priority, &[nat])
    };
    let alone = walk(
        &with_own_table(Ruleset::default()),
        &forwarded(),
        translates(),
    );
    assert_eq!(sent(&alone), Some((end("10.3.0.1:40000"), end(BACKEND))));
    assert_eq!(
        own_steps(&alone),
        [(Hook::Prerouting, false), (Hook::Postrouting, false)]
    );

    let later = walk(&with_own_table(other(-100)), &forwarded(), translates());
    assert_eq!(sent(&later), sent(&alone));

    let earlier = walk(&with_own_table(other(-102)), &forwarded(), translates());
    assert_eq!(sent(&earlier), Some((end(CLIENT), end("10.2.0.9:90"))));
    assert_eq!(own_steps(&earlier), [(Hook::Prerouting, true)]);

    let absent = walk(&Ruleset::default(), &forwarded(), translates());
    assert_eq!(sent(&absent), Some((end(CLIENT), end(SERVER))));
}

#[test]
fn own_table_refuses_and_drops_at_its_chain() {
    for own in [OwnVerdict::Rejected, OwnVerdict::Dropped] {
        let ruleset = with_own_table(Ruleset::default());
        assert_eq!(walk(&ruleset, &forwarded(), own).end, WalkEnd::OwnTable);
        let untracked = with_own_table(table().with_base(
            Filter,
            Hook::Prerouting,
            -300,
            &[rule([statement("notrack")])],
        ));
        let walk = walk(&untracked, &forwarded(), own);
        assert_eq!(sent(&walk), Some((end(CLIENT), end(SERVER))));
        assert_eq!(own_steps(&walk), [(Hook::Prerouting, true)]);
    }
}

#[test]
fn notrack_after_conntrack_has_no_effect() {
    for (priority, is_untracked) in [(-201, true), (-199, false)] {
        let ruleset = with_own_table(table().with_base(
            Filter,
            Hook::Prerouting,
            priority,
            &[rule([statement("notrack")])],
        ));
        let walk = walk(&ruleset, &forwarded(), translates());
        let has_step = (walk.steps.iter()).any(|step| matches!(step, WalkStep::Untracked(_)));
        assert_eq!(has_step, is_untracked);
        assert_eq!(sent(&walk).unwrap().1 == end(SERVER), is_untracked);
    }
}

#[test]
fn answer_gets_its_addresses_back() {
    let ruleset = with_own_table(
        table().with_base(
            Filter,
            Hook::Forward,
            0,
            &[
                rule([load("ct", expr::CT_STATE), equals(&2_u32.to_ne_bytes())])
                    .into_iter()
                    .chain(set_mark(9))
                    .collect(),
            ],
        ),
    );
    let first = walk(&ruleset, &forwarded(), translates());
    let back = answer(&ruleset, &forwarded(), &first).unwrap();
    assert_eq!(sent(&back), Some((end(SERVER), end(CLIENT))));
    let marks = |walk: &Walk| {
        let marked = |step: &&WalkStep| matches!(step, WalkStep::Marked { mark: 9, .. });
        walk.steps.iter().filter(marked).count()
    };
    assert_eq!((marks(&first), marks(&back)), (0, 1), "it is established");

    let stopped = walk(
        &table().with_base(Filter, Hook::Forward, 0, &[rule([drop_packet()])]),
        &forwarded(),
        translates(),
    );
    assert_eq!(answer(&ruleset, &forwarded(), &stopped), None);
}

#[test]
fn answer_to_untracked_packet_keeps_its_addresses_and_is_invalid() {
    let ruleset = table()
        .with_base(
            Filter,
            Hook::Prerouting,
            -300,
            &[port_then(80, statement("notrack"))],
        )
        .with_base(
            Filter,
            Hook::Forward,
            0,
            &[rule([
                load("ct", expr::CT_STATE),
                equals(&1_u32.to_ne_bytes()),
                drop_packet(),
            ])],
        );
    let first = walk(&ruleset, &forwarded(), OwnVerdict::Untouched);
    assert_eq!(sent(&first), Some((end(CLIENT), end(SERVER))));
    let back = answer(&ruleset, &forwarded(), &first).unwrap();
    assert_eq!(stopped(&back), Some((1, StopKind::Drops)));
}

#[test]
fn packet_to_this_node_itself_comes_in_again() {
    let nat = translate_destination([10, 1, 0, 1], 81);
    let ruleset = table()
        .with_base(Nat, Hook::Output, -100, &[nat])
        .with_base(Filter, Hook::Postrouting, 0, &[])
        .with_base(Filter, Hook::Input, 0, &[port_then(81, drop_packet())]);
    let packet = packet("10.1.0.1:40000", SERVER);
    let walked = walk(&ruleset, &packet, OwnVerdict::Untouched);
    assert_eq!(stopped(&walked), Some((1, StopKind::Drops)), "{walked:?}");
    let routes = walked.steps.iter().filter_map(|step| match step {
        WalkStep::Routed(route) => Some(matches!(route, Route::Local)),
        _ => None,
    });
    assert_eq!(routes.collect::<Vec<_>>(), [false, true]);
}

#[test]
fn mark_routes_again_only_in_route_chains() {
    let with =
        |kind, hook| table().with_base(kind, hook, -150, &[rule(set_mark(MARK_WITHOUT_ROUTE))]);
    let sent_here = packet("10.1.0.1:40000", SERVER);
    let lost = WalkEnd::NotRouted(Route::Unreachable);
    let untouched = OwnVerdict::Untouched;
    let by_route = walk(&with(RouteChain, Hook::Output), &sent_here, untouched);
    assert_eq!(by_route.end, lost);
    let by_filter = walk(&with(Filter, Hook::Output), &sent_here, untouched);
    assert_ne!(by_filter.end, lost);
    let before = walk(&with(Filter, Hook::Prerouting), &forwarded(), untouched);
    assert_eq!(before.end, lost);
}

/// A rule with a condition that is unknown, and what it would do.
fn uncertain(effect: Encoded) -> Vec<Encoded> {
    let random = expression("numgen", |message| {
        message.u32(expr::NUMGEN_DREG, 1);
        message.u32(expr::NUMGEN_MODULUS, 2);
    });
    rule([random, equals(&0_u32.to_ne_bytes()), effect])
}

#[test]
fn unknown_condition_is_said_and_does_not_match() {
    let sub = |effect| table().with_chain("sub", &[rule([effect])]);
    let cases = [
        (table(), drop_packet(), Some(("drop", true))),
        (table(), accept(), Some(("accept", false))),
        (table(), statement("counter"), None),
        (table(), statement("notrack"), Some(("notrack", true))),
        (sub(drop_packet()), jump("sub"), Some(("jump sub", true))),
        (sub(accept()), jump("sub"), Some(("jump sub", false))),
    ];
    for (ruleset, effect, expected) in cases {
        let ruleset = ruleset.with_base(Filter, Hook::Forward, 0, &[uncertain(effect)]);
        let walk = walk(&ruleset, &forwarded(), OwnVerdict::Untouched);
        assert_eq!(stopped(&walk), None);
        let doubts: Vec<_> = (walk.doubts.iter())
            .map(|doubt| (doubt.effect.as_str(), doubt.is_harmful))
            .collect();
        assert_eq!(doubts, Vec::from_iter(expected));
        assert!(walk.doubts.iter().all(|doubt| doubt.condition == "numgen"));
    }
}

#[test]
fn end_is_certain_unless_an_unknown_rule_may_change_it() {
    let rules = |first, second| {
        let rules = [first, rule([second])];
        let ruleset = table().with_base(Filter, Hook::Forward, 0, &rules);
        walk(&ruleset, &forwarded(), OwnVerdict::Untouched).is_end_certain()
    };
    assert!(rules(rule([statement("counter")]), drop_packet()));
    assert!(!rules(uncertain(accept()), drop_packet()));
    assert!(!rules(uncertain(drop_packet()), accept()));
    assert!(rules(uncertain(accept()), accept()));
}

#[test]
fn condition_that_fails_after_an_unknown_one_is_no_doubt() {
    let mut rule = uncertain(statement("counter"));
    rule.extend(port_then(81, drop_packet()));
    let ruleset = table().with_base(Filter, Hook::Forward, 0, &[rule]);
    let walk = walk(&ruleset, &forwarded(), OwnVerdict::Untouched);
    assert_eq!((stopped(&walk), walk.doubts), (None, vec![]));
}

#[test]
fn mark_that_may_be_set_makes_later_conditions_unknown() {
    let mut first = uncertain(statement("counter"));
    first.extend(set_mark(5));
    let second = rule([
        load("meta", expr::META_MARK),
        equals(&5_u32.to_ne_bytes()),
        drop_packet(),
    ]);
    let third = rule([
        load("meta", expr::META_MARK),
        equals(&8_u32.to_ne_bytes()),
        drop_packet(),
    ]);
    let ruleset = table().with_base(Filter, Hook::Forward, 0, &[first, second, third]);
    let walk = walk(&ruleset, &forwarded(), OwnVerdict::Untouched);
    let rules: Vec<_> = (walk.doubts.iter())
        .map(|doubt| (doubt.rule.handle, doubt.is_harmful))
        .collect();
    assert_eq!(rules, [(Some(1), false), (Some(2), true)], "{walk:?}");
}

#[test]
fn limit_is_taken_as_not_exceeded() {
    let limit = |flags: u32| expression("limit", |message| message.u32(expr::LIMIT_FLAGS, flags));
    for (flags, effect, is_stopped, is_harmful) in [
        (0, accept(), false, false),
        (0, drop_packet(), true, false),
        (expr::LIMIT_FLAG_INV, drop_packet(), false, true),
    ] {
        let rules = [rule([limit(flags), effect])];
        let ruleset = table().with_base(Filter, Hook::Forward, 0, &rules);
        let walk = walk(&ruleset, &forwarded(), OwnVerdict::Untouched);
        assert_eq!(stopped(&walk).is_some(), is_stopped);
        assert_eq!(walk.doubts.len(), 1);
        assert_eq!(walk.doubts[0].is_harmful, is_harmful);
    }
}

#[test]
fn random_lookup_is_certain_if_all_elements_agree() {
    let random = || {
        expression("numgen", |message| {
            message.u32(expr::NUMGEN_DREG, 1);
            message.u32(expr::NUMGEN_MODULUS, 2);
        })
    };
    let ruleset = table().with_set("m", 4).with_base(
        Filter,
        Hook::Forward,
        0,
        &[rule([random(), look_up("m", Some(0))])],
    );
    let with = |second: Verdict| {
        let element = |key: u32, verdict| {
            let key = ("m".to_owned(), key.to_ne_bytes().to_vec());
            (key, Data::Verdict(verdict))
        };
        let all = [element(0, Verdict::Drop), element(1, second)];
        let mut lookups = Elements(all.into());
        let untouched = OwnVerdict::Untouched;
        follow::walk_first(&ruleset, &forwarded(), untouched, &mut Node, &mut lookups).unwrap()
    };
    let certain = with(Verdict::Drop);
    assert_eq!(stopped(&certain), Some((1, StopKind::Drops)));
    let open = with(Verdict::Accept);
    assert_eq!(stopped(&open), None);
    let effects = open.doubts.iter().map(|doubt| doubt.effect.as_str());
    assert_eq!(effects.collect::<Vec<_>>(), ["accept", "drop"]);
}

#[test]
fn element_of_a_set_decides_a_lookup() {
    let ruleset = table().with_set("s", 2).with_base(
        Filter,
        Hook::Forward,
        0,
        &[rule([
            payload(expr::PAYLOAD_TRANSPORT_HEADER, 2, 2),
            look_up("s", None),
            drop_packet(),
        ])],
    );
    for (port, is_stopped) in [(80_u16, true), (81, false)] {
        let key = ("s".to_owned(), port.to_be_bytes().to_vec());
        let mut lookups = Elements([(key, Data::None)].into());
        let untouched = OwnVerdict::Untouched;
        let walk =
            follow::walk_first(&ruleset, &forwarded(), untouched, &mut Node, &mut lookups).unwrap();
        assert_eq!(stopped(&walk).is_some(), is_stopped);
    }
}

#[test]
fn errors_about_sizes_pass_the_rules_as_related_packets() {
    let first = |ruleset: &Ruleset| walk(ruleset, &forwarded(), OwnVerdict::Untouched);
    let error = |ruleset: &Ruleset, error| {
        let (first, lookups) = (first(ruleset), &mut Elements::default());
        let walked =
            follow::walk_size_error(ruleset, &forwarded(), &first, error, &mut Node, lookups);
        walked.unwrap().unwrap()
    };
    let drops_icmp = |hook| {
        let type_and_code = [
            payload(expr::PAYLOAD_TRANSPORT_HEADER, 0, 2),
            equals(&[3, 4]),
        ];
        let protocol = [load("meta", expr::META_L4PROTO), equals(&[1])];
        let rules = [rule(
            protocol
                .into_iter()
                .chain(type_and_code)
                .chain([drop_packet()]),
        )];
        table().with_base(Filter, hook, 0, &rules)
    };
    let output = drops_icmp(Hook::Output);
    for (of_node, expected) in [(SizeError::ToClient, CLIENT), (SizeError::ToServer, SERVER)] {
        assert_eq!(
            stopped(&error(&output, of_node)),
            Some((1, StopKind::Drops))
        );
        let passed = error(&drops_icmp(Hook::Forward), of_node);
        assert_eq!(sent(&passed).unwrap().1, end(expected));
    }
    let beyond = SizeError::ToClientFromBeyond;
    assert_eq!(stopped(&error(&output, beyond)), None);
    let forward = drops_icmp(Hook::Forward);
    assert_eq!(
        stopped(&error(&forward, beyond)),
        Some((1, StopKind::Drops))
    );
    assert_eq!(stopped(&first(&forward)), None, "no packet of ICMP");
    // It belongs to the connection, if that is tracked.
    let related = [
        load("ct", expr::CT_STATE),
        equals(&expr::CT_STATE_RELATED.to_ne_bytes()),
    ];
    let rules = [rule(related.into_iter().chain([drop_packet()]))];
    let mut ruleset = table().with_base(Filter, Hook::Output, 0, &rules);
    ruleset.has_conntrack = true;
    assert_eq!(
        stopped(&error(&ruleset, SizeError::ToClient)),
        Some((1, StopKind::Drops))
    );
}

#[test]
fn rewritten_address_is_harmful_and_rewritten_field_is_not() {
    for (offset, is_harmful) in [(16, true), (1, false), (8, false)] {
        let write = expression("payload", |message| {
            message.u32(expr::PAYLOAD_SREG, 1);
            message.u32(expr::PAYLOAD_BASE, expr::PAYLOAD_NETWORK_HEADER);
            message.u32(expr::PAYLOAD_OFFSET, offset);
            message.u32(expr::PAYLOAD_LEN, 1);
        });
        let rules = [rule([value(&[1]), write])];
        let ruleset = table().with_base(Filter, Hook::Forward, 0, &rules);
        let walk = walk(&ruleset, &forwarded(), OwnVerdict::Untouched);
        assert_eq!(walk.doubts.iter().any(|doubt| doubt.is_harmful), is_harmful);
    }
}

const NAMES: [&str; 27] = [
    "immediate",
    "payload",
    "meta",
    "cmp",
    "range",
    "bitwise",
    "byteorder",
    "lookup",
    "objref",
    "dynset",
    "ct",
    "fib",
    "exthdr",
    "limit",
    "quota",
    "nat",
    "masq",
    "redir",
    "reject",
    "queue",
    "numgen",
    "hash",
    "socket",
    "match",
    "target",
    "synproxy",
    "osf",
];

const EXTENSIONS: [&str; 18] = [
    "conntrack",
    "state",
    "tcp",
    "udp",
    "sctp",
    "multiport",
    "addrtype",
    "mark",
    "connmark",
    "iprange",
    "pkttype",
    "comment",
    "set",
    "icmp",
    "DNAT",
    "MARK",
    "CONNMARK",
    "CT",
];

proptest! {
    /// Any attributes are decoded, and what they become is run.
    #[test]
    fn random_expressions_never_panic(
        names in prop::collection::vec(prop::sample::select(&NAMES[..]), 1..5),
        numbers in prop::collection::vec((1_u16..12, prop_oneof![0_u32..24, any::<u32>()]), 0..12),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        extension in prop::sample::select(&EXTENSIONS[..]),
        revision in 0_u32..5,
    ) {
        let rules = names.iter().map(|name| expression(name, |message| {
            if ["match", "target"].contains(name) {
                message.text(expr::TARGET_NAME, extension);
                message.u32(expr::TARGET_REVISION, revision);
                message.bytes(expr::TARGET_INFO, &bytes);
            }
            for (kind, number) in &numbers {
                message.u32(*kind, *number);
            }
            message.nested(expr::CMP_DATA, |inner| inner.bytes(1, &bytes));
        }));
        let ruleset = table()
            .with_set("", 4)
            .with_base(Filter, Hook::Prerouting, 0, &[rule(rules)]);
        let lookups = &mut Elements::default();
        let untouched = OwnVerdict::Untouched;
        drop(follow::walk_first(&ruleset, &forwarded(), untouched, &mut Node, lookups));
    }

    /// Bytes that are no attributes are decoded too.
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        Expression::decode(Attributes(&bytes));
        let mut object = Vec::new();
        let mut writer = crate::netlink::Writer::new(&mut object);
        writer.bytes(rule::EXPRESSIONS, &bytes);
        writer.bytes(rule::USERDATA, &bytes);
        writer.bytes(LIST_ELEM, &bytes);
        let mut ruleset = table().with_base(Filter, Hook::Forward, 0, &[]);
        ruleset.add_rule(0, Attributes(&object));
        drop(walk(&ruleset, &forwarded(), OwnVerdict::Untouched));
    }
}
