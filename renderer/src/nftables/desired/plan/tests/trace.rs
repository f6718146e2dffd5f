//! Rendered elements and [`contiv_model::trace`] are written independently, and must agree on every flow.

mod services;

use std::{collections::BTreeMap, sync::Arc};

use contiv_model::{
    Balance, InterfaceName, Snapshot, trace,
    trace::{Affinity, Verdict},
};
use contiv_model_testing::mirror;
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

use crate::nftables::{
    element_lines,
    explain::evaluate::{RenderedTables, differences, evaluate},
};
use services::{flows, snapshot};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn elements_and_trace_agree_on_every_flow(snapshot in snapshot()) {
        let mut rendered = RenderedTables::of(&snapshot);
        for flow in flows() {
            let trace = trace(&snapshot, &flow);
            let Ok(answer) = evaluate(&mut rendered, &flow);
            prop_assert_eq!(differences(&trace, &answer), Vec::<String>::new(), "{}{}", trace, answer);
        }
    }

    #[test]
    fn mirror_image_of_services_has_the_mirror_image_as_elements(snapshot in snapshot()) {
        let snapshot = with_all_kinds(snapshot);
        let mut expected: Vec<(String, String)> = element_lines(&snapshot)
            .into_iter()
            .map(|(set, element)| (mirror::text(&set), mirror::text(&element)))
            .collect();
        let mut elements = element_lines(&mirror::snapshot(&snapshot));
        expected.sort();
        elements.sort();
        prop_assert_eq!(elements, expected);
    }
}

/// With what other tests do not need, and without a choice by the addresses themselves.
fn with_all_kinds(mut snapshot: Snapshot) -> Snapshot {
    for service in snapshot.services.values_mut() {
        let service = Arc::make_mut(service);
        (service.balance, service.affinity_shared) = (Balance::Random, false);
    }
    let sources = ["192.168.0.1", "fd00:a::1"].map(|source| source.parse().unwrap());
    snapshot
        .node
        .masquerade_sources
        .insert(InterfaceName::new("eth0"), sources.into());
    snapshot
}

#[test]
fn random_services_lead_to_every_answer() {
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for _ in 0..200 {
        let snapshot = snapshot().new_tree(&mut runner).unwrap().current();
        for flow in flows() {
            let words: &[&str] = match trace(&snapshot, &flow).verdict {
                Verdict::Backends(delivery) => &[
                    match delivery.affinity {
                        Affinity::None => "random",
                        Affinity::Timeout { .. } => "sticky",
                        Affinity::ClientAddress => "by client",
                    },
                    match delivery
                        .candidates
                        .iter()
                        .any(|candidate| candidate.hairpin)
                    {
                        _ if delivery.masquerade.is_hidden() => "hidden",
                        _ if delivery.candidates.iter().any(|candidate| candidate.egress) => {
                            "egress by service"
                        }
                        true => "hidden for a hairpin",
                        false => "kept",
                    },
                ],
                Verdict::Rejected(_) => &["rejected"],
                Verdict::Dropped(_) => &["dropped"],
                Verdict::Routed => &["routed"],
                Verdict::Egress => &["egress"],
                Verdict::Untouched => &["untouched"],
            };
            for word in words {
                *seen.entry(word).or_default() += 1;
            }
        }
    }
    for word in [
        "random",
        "sticky",
        "by client",
        "kept",
        "hidden",
        "hidden for a hairpin",
        "rejected",
        "dropped",
        "routed",
        "egress",
        "egress by service",
        "untouched",
    ] {
        assert!(
            seen.get(word).is_some_and(|&count| count >= 20),
            "{word} is rare: {seen:?}"
        );
    }
}
