//! Rendered elements and [`contiv_model::trace`] are written independently, and must agree on every flow.

mod services;

use std::collections::BTreeMap;

use contiv_model::{
    trace,
    trace::{Affinity, Verdict},
};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

use crate::nftables::evaluate::{RenderedTables, differences, evaluate};
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
                    match delivery.candidates.iter().any(|candidate| candidate.hairpin) {
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
        assert!(seen.get(word).is_some_and(|&count| count >= 20), "{word} is rare: {seen:?}");
    }
}
