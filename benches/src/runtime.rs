//! The control-loop runtime beside kube-runtime: the same objects, the same changes, the same reconciler.
//!
//! `controller/benches/compare` measures, in a process for each of the two. It is a package of its own: nothing else
//! needs what kube-runtime brings along. `scripts/bench` builds it.

use std::{env, path::PathBuf};

use contiv_tests::lab::{LabError, Result};
use serde::Deserialize;

use crate::{
    command,
    figures::{Figure, Quantity},
};

/// Where these figures are in the table.
pub const SECTION: &str = "runtime";
/// How many objects the reconcilers see.
const KEYS: usize = 100_000;

/// What the comparison prints of one runtime: seconds and MiB.
#[derive(Debug, Clone, Copy, Deserialize)]
struct RuntimeFigures {
    start: f64,
    churn: f64,
    p50: f64,
    p99: f64,
    memory: f64,
    peak: f64,
}

/// Measures both, one after the other. What kube-runtime needs stands where other sections have the floor.
///
/// # Errors
/// When the program of the comparison cannot be run, or fails.
pub fn measure() -> Result<Vec<Figure>> {
    let (ours, theirs) = (run("contiv")?, run("kube")?);
    let figure = |name: &str, of: fn(&RuntimeFigures) -> Quantity| {
        Figure::new(SECTION, format!("{name}, beside kube-runtime"), (KEYS, 0), of(&ours)).beside(of(&theirs))
    };
    Ok(vec![
        figure("start until all is reconciled", |measured| Quantity::Seconds(measured.start)),
        figure("a change of everything", |measured| Quantity::Seconds(measured.churn)),
        figure("one change until its run, p50", |measured| Quantity::Seconds(measured.p50)),
        figure("one change until its run, p99", |measured| Quantity::Seconds(measured.p99)),
        figure("memory", |measured| Quantity::Mebibytes(measured.memory)),
        figure("memory at its peak", |measured| Quantity::Mebibytes(measured.peak)),
    ])
}

fn run(runtime: &str) -> Result<RuntimeFigures> {
    let program = program()?;
    let output = command::run(&[&program.to_string_lossy(), &KEYS.to_string(), runtime, "json"])?;
    serde_json::from_str(&output)
        .map_err(|error| LabError::Unexpected(format!("figures of {runtime}: {error} in {output:?}")))
}

/// Beside this program, where `scripts/bench` puts it.
fn program() -> Result<PathBuf> {
    let this = env::current_exe().map_err(|error| LabError::system("find this program", error))?;
    Ok(this.with_file_name("contiv-controller-compare"))
}
