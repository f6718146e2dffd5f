//! The control-loop runtime beside kube-runtime: the same objects, the same changes, the same reconciler.
//!
//! `controller/benches/compare` measures each of the two in its own process. It is a separate package, so that nothing else
//! depends on kube-runtime. `scripts/bench` builds it.

use std::{env, path::PathBuf};

use contiv_tests::lab::{LabError, Result};
use serde::Deserialize;

use crate::{
    command,
    figures::{Figure, Quantity},
};

/// The section of these figures in the table.
pub const SECTION: &str = "runtime";
/// The number of objects.
const KEYS: usize = 100_000;

/// The output of the comparison for one runtime: seconds and MiB.
#[derive(Debug, Clone, Copy, Deserialize)]
struct RuntimeFigures {
    start: f64,
    churn: f64,
    p50: f64,
    p99: f64,
    memory: f64,
    peak: f64,
}

/// Measures both, one after the other. The figure of kube-runtime takes the place of the floor in other sections.
///
/// # Errors
/// When the program of the comparison cannot be run, or fails.
pub fn measure() -> Result<Vec<Figure>> {
    let (ours, theirs) = (run("contiv")?, run("kube")?);
    let figure = |name: &str, of: fn(&RuntimeFigures) -> Quantity| {
        Figure::new(
            SECTION,
            format!("{name}, beside kube-runtime"),
            (KEYS, 0),
            of(&ours),
        )
        .beside(of(&theirs))
    };
    Ok(vec![
        figure("start until all is reconciled", |measured| {
            Quantity::Seconds(measured.start)
        }),
        figure("a change of everything", |measured| {
            Quantity::Seconds(measured.churn)
        }),
        figure("one change until its run, p50", |measured| {
            Quantity::Seconds(measured.p50)
        }),
        figure("one change until its run, p99", |measured| {
            Quantity::Seconds(measured.p99)
        }),
        figure("memory", |measured| Quantity::Mebibytes(measured.memory)),
        figure("memory at its peak", |measured| {
            Quantity::Mebibytes(measured.peak)
        }),
    ])
}

fn run(runtime: &str) -> Result<RuntimeFigures> {
    let program = program()?;
    let output = command::run(&[
        &program.to_string_lossy(),
        &KEYS.to_string(),
        runtime,
        "json",
    ])?;
    serde_json::from_str(&output).map_err(|error| {
        LabError::Unexpected(format!("figures of {runtime}: {error} in {output:?}"))
    })
}

/// The program beside this one, where `scripts/bench` puts it.
fn program() -> Result<PathBuf> {
    let this = env::current_exe().map_err(|error| LabError::system("find this program", error))?;
    Ok(this.with_file_name("contiv-controller-compare"))
}
