//! `contiv-bench`: measures, prints a table, writes JSON and plots. Runs in namespaces of its own.

use std::{fs, path::PathBuf, time::Duration};

use clap::Parser;
use contiv_benches::{
    figures::{Figure, table},
    parts,
};
use contiv_tests::lab::{Lab, LabError, Result, isolated_measurement};

/// After this everything is killed.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// Measures contiv beside the kernel's floor and beside its peers.
#[derive(Debug, Parser)]
struct Options {
    /// Fewer sizes and shorter: about a minute.
    #[arg(long)]
    quick: bool,
    /// Only this section.
    #[arg(long, value_name = "SECTION")]
    only: Option<String>,
    /// Where results.json and the plots go.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

fn main() -> Result<()> {
    let options = Options::parse();
    isolated_measurement(TIME_LIMIT, |lab| measure(lab, &options))
}

fn measure(lab: &Lab, options: &Options) -> Result<()> {
    let mut figures = Vec::new();
    let is_wanted = |section: &str| options.only.as_deref().is_none_or(|only| only == section);
    if is_wanted(parts::SECTION) {
        for services in [100, 1000, 10_000, 100_000] {
            if !(options.quick && services > 10_000) {
                progress(&format!("parts, {services} services"));
                figures.extend(parts::measure(lab, services)?);
            }
        }
    }
    report(&figures, options)
}

#[expect(clippy::print_stderr, reason = "this is what a person who waits looks at")]
fn progress(what: &str) {
    eprintln!("{what}");
}

#[expect(clippy::print_stdout, reason = "this is the result")]
fn report(figures: &[Figure], options: &Options) -> Result<()> {
    println!("{}", table(figures));
    let path = options.out.join("results.json");
    let json = serde_json::to_vec_pretty(figures).map_err(|error| LabError::Unexpected(error.to_string()))?;
    fs::create_dir_all(&options.out)
        .and_then(|()| fs::write(&path, json))
        .map_err(|error| LabError::system(format!("write {}", path.display()), error))
}
