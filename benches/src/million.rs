//! The largest tables: a million services with one endpoint, and 250,000 with four.

use std::time::Duration;

use contiv_tests::lab::{Lab, Result};

use crate::{
    cluster::{self, Scenario},
    figures::{Figure, Limit, Quantity},
    workload::Workload,
};

/// The section of these figures in the table.
pub const SECTION: &str = "million";

/// The sizes, with the memory at rest that is allowed.
const SIZES: [(Workload, f64); 2] = [
    (
        Workload {
            services: 250_000,
            backends: 4,
        },
        0.7 * 1024.0,
    ),
    (
        Workload {
            services: 1_000_000,
            backends: 1,
        },
        1.6 * 1024.0,
    ),
];

/// Measures start, restart, memory and single changes.
///
/// # Errors
/// When an operation fails; slow figures are not errors.
pub fn measure(lab: &Lab) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (workload, mebibytes) in SIZES {
        crate::progress(&format!(
            "{} services with {} backends",
            workload.services, workload.backends
        ));
        let scenario = Scenario {
            section: SECTION,
            workload,
            start: Some(Limit::AtMost(Quantity::Seconds(25.0))),
            restart: Some(Limit::AtMost(Quantity::Seconds(30.0))),
            memory: Some(Limit::AtMost(Quantity::Mebibytes(mebibytes))),
            change: [
                Some(Limit::AtMost(Duration::from_micros(150).into())),
                Some(Limit::AtMost(Duration::from_millis(3).into())),
            ],
            churn: None,
            list_alone: true,
            restart_under_load: true,
        };
        let measured = cluster::measure(lab, scenario)?;
        crate::progress(&format!("\n{}", crate::figures::table(&measured)));
        figures.extend(measured);
    }
    Ok(figures)
}
