//! Runs the faults of a group, one after the other in one cluster.

use contiv_tests::lab::{LabError, Result};
use serde_json::Value;

use super::{
    attempt::{fails, wait_until_answered},
    fault::{Fault, Machine, Step},
    report::{Rating, Row, check_section},
    scene::Scene,
};

/// Forgets what the kernel learnt from the packets of a fault.
const FORGET: &str = "conntrack -F 2>/dev/null; ip neigh flush all";

/// Makes each fault, lets its client connect, asks `contiv why`, and ends it. Then compares the results with those in the document.
pub(super) fn run_group(title: &str, scene: &mut Scene<'_>, faults: &[Fault]) -> Result<()> {
    let mut rows = Vec::with_capacity(faults.len());
    let mut broken = Vec::new();
    for fault in faults {
        match run_fault(scene, fault) {
            Ok(row) => rows.push(row),
            // The others are still of interest.
            Err(error) => broken.push(format!("{fault}: {error}")),
        }
    }
    if !broken.is_empty() {
        return Err(LabError::Unexpected(broken.join("\n")));
    }
    check_section(title, &rows)
}

fn run_fault(scene: &mut Scene<'_>, fault: &Fault) -> Result<Row> {
    if fault.is_healthy_without {
        wait_until_answered(scene, fault)?;
        // It succeeded long ago.
        forget(scene)?;
    }
    let injected = fault.inject.iter().try_for_each(|step| step.run(scene));
    let result = injected.and_then(|()| observe(scene, fault));
    for step in &fault.undo {
        step.run(scene)?;
    }
    scene.kept.clear();
    forget(scene)?;
    result
}

fn forget(scene: &mut Scene<'_>) -> Result<()> {
    Step::Shell(Machine::Node, FORGET.to_owned()).run(scene)
}

fn observe(scene: &Scene<'_>, fault: &Fault) -> Result<Row> {
    if !fails(scene, fault)? {
        return Err(LabError::Unexpected(
            "connections do not fail as it says".to_owned(),
        ));
    }
    let (answer, code) = scene.explain(fault.from, &fault.to, fault.probes)?;
    Ok(row(fault, &answer, code))
}

fn row(fault: &Fault, answer: &Value, code: Option<i32>) -> Row {
    let named = answer["cause"]["code"].as_str().unwrap_or_default();
    let others = answer["others"].as_array().into_iter().flatten();
    let is_right = |code: &str| fault.codes.contains(&code);
    let is_among_others = others
        .filter_map(|other| other["code"].as_str())
        .any(is_right);
    let rating = if is_right(named) && code == Some(1) {
        Rating::Right
    } else if is_among_others {
        Rating::Partly
    } else if named.is_empty() {
        Rating::Missed
    } else {
        Rating::Misleading
    };
    Row {
        fault: format!("{:?} to {}: {}", fault.from, fault.to, fault.name),
        expert: fault.expert.to_owned(),
        named: named.to_owned(),
        rating,
    }
}
