//! `contiv-soak`: runs an agent at a constant rate of changes for a long time and samples its resource usage. See
//! `benches/soak`.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;
use contiv_benches::soak::{self, Soak};
use contiv_tests::lab::{Result, isolated_measurement};

/// Follows an agent at a constant rate of changes; prints what grew, writes soak.json and soak.svg.
#[derive(Debug, Parser)]
struct Options {
    /// For how long.
    #[arg(long, default_value_t = 1200)]
    seconds: u64,
    /// Changes a second.
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// Services, with four backends each.
    #[arg(long, default_value_t = 10_000)]
    services: usize,
    /// The folder for soak.json and soak.svg.
    #[arg(long, default_value = "target/soak")]
    out: PathBuf,
}

fn main() -> Result<ExitCode> {
    let Options {
        seconds,
        rate,
        services,
        out,
    } = Options::parse();
    // Twice as long, in case etcd is slow, plus the start.
    let limit = Duration::from_secs(seconds * 2 + 300);
    let mut is_flat = true;
    isolated_measurement(limit, |lab| {
        let outcome = soak::run(
            lab,
            Soak {
                seconds,
                rate,
                services,
            },
            &out,
        )?;
        is_flat = report(&outcome);
        Ok(())
    })?;
    Ok(if is_flat {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns whether nothing grew and no change was lost.
#[expect(clippy::print_stdout, reason = "this is the result")]
fn report(outcome: &soak::Outcome) -> bool {
    println!(
        "{} changes acknowledged by etcd, {} of them never seen in the kernel",
        outcome.acknowledged, outcome.lost
    );
    for trend in &outcome.trends {
        println!("{trend}");
    }
    outcome.lost == 0 && outcome.trends.iter().all(|trend| trend.is_flat)
}
