//! Runs what is simulated for long: `scripts/simulate` starts it.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this is a program for a terminal")]

use std::{process::ExitCode, time::Instant};

use contiv_renderer::kernel::Linux;
use contiv_sim::kernel::compare;

const USAGE: &str = "usage: contiv-simulate --kernel [TRANSACTIONS] [SEED]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |text| text.parse());
    #[expect(clippy::single_match_else, reason = "other modes come beside it")]
    match (arguments.first().map(String::as_str), number(1, 100_000), number(2, 1)) {
        (Some("--kernel"), Ok(count), Ok(seed)) => kernel(usize::try_from(count).unwrap_or(usize::MAX), seed),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Holds the model of the kernel against the one of this network namespace.
fn kernel(count: usize, seed: u64) -> ExitCode {
    let start = Instant::now();
    match compare::compare(&Linux, count, seed) {
        Ok(comparison) => {
            let seconds = start.elapsed().as_secs_f64();
            let compare::Comparison { transactions, messages, committed, errors } = comparison;
            #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
            let rate = transactions as f64 / seconds;
            println!(
                "seed {seed}: {transactions} transactions of {messages} messages gave the same answers and the same tables in \
                 both: {committed} committed, {errors} errors; {seconds:.1} s, {rate:.0} transactions/s"
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
