//! Compares flows without packets: the agent's trace, and the kernel's tables as evaluated by the renderer.

use contiv_tests::{
    agent::Agent,
    lab::{Lab, Result},
};

use super::{evaluator, kernel, matrix::Flow};

/// Evaluates all flows by the agent and by the kernel's tables, compares them with the oracle, and prints their number.
#[expect(
    clippy::print_stdout,
    reason = "how many flows agree is part of the result"
)]
pub(crate) fn compare(name: &str, lab: &Lab, agent: &Agent<'_>, flows: &[Flow]) -> Result<()> {
    let traces = evaluator::traces(lab, agent, flows)?;
    let wrong = evaluator::mismatches(lab, flows, &traces);
    println!(
        "{name}, evaluator: {} flows, {} of them not as expected",
        traces.len(),
        wrong.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let unexplained = evaluator::unexplained(lab, flows, &traces);
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
    let wrong = kernel::mismatches(lab, flows, &traces)?;
    println!(
        "{name}, kernel's tables: {} flows, {} of them not as expected",
        flows.len(),
        wrong.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
