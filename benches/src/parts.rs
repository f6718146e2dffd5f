//! Measures the parts of the agent one by one: decoding, merging, planning, encoding, and programming the kernel, compared with its
//! floor: the time that the kernel alone takes for the same elements.

mod common;
mod kernel;
mod processor;

use std::time::Duration;

use contiv_tests::lab::{Lab, Result};

use crate::{figures::Figure, workload::Workload};

pub use common::SECTION;
pub(crate) use common::decode_error;

/// Measures every part with this many services of four backends each.
///
/// # Errors
/// When an operation fails; slow figures are not errors.
pub fn measure(lab: &Lab, services: usize) -> Result<Vec<Figure>> {
    let workload = Workload {
        services,
        backends: 4,
    };
    let mut figures = processor::measure(workload)?;
    figures.extend(lab.node.run(|| kernel::measure(lab, workload))?);
    Ok(figures)
}

/// The time of the kernel alone for 10,000 services in an empty table.
///
/// # Errors
/// When anything fails.
pub fn cold_floor(lab: &Lab) -> Result<Duration> {
    lab.node.run(|| {
        kernel::cold_floor(
            lab,
            Workload {
                services: 10_000,
                backends: 4,
            },
        )
    })
}
