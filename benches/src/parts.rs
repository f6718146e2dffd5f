//! The parts inside the agent, one by one: decode, combine, plan and encode, and the kernel beside its floor.

mod kernel;
mod processor;

use contiv_tests::lab::{Lab, Result};

use crate::{figures::Figure, workload::Workload};

/// Where these figures are in the table.
pub const SECTION: &str = "parts";

/// Measures every part for so many services with four backends each.
///
/// # Errors
/// When anything fails; a part that is slow is a figure and no error.
pub fn measure(lab: &Lab, services: usize) -> Result<Vec<Figure>> {
    let workload = Workload { services, backends: 4 };
    let mut figures = processor::measure(workload)?;
    figures.extend(lab.node.run(|| kernel::measure(lab, workload))?);
    Ok(figures)
}

/// How often something of this size is repeated.
const fn repetitions(services: usize) -> usize {
    if services > 20_000 { 3 } else { 5 }
}
