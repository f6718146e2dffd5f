//! Compares contiv-controller with kube-runtime: the same objects, the same changes, the same reconciler.
//!
//! `cargo run --release` measures both, each in a separate process, and prints a table. `-- KEYS` sets how many objects there
//! are (100,000), `-- KEYS contiv` or `-- KEYS kube` measures one of them here and prints its figures, with `json` after it for
//! programs.

mod contiv;
mod figures;
mod kube;
mod measure;
mod source;

use std::{env, error::Error, process::Command};

use figures::Figures;

const RUNTIMES: [&str; 2] = ["contiv", "kube"];

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let keys: u64 = arguments.first().map_or(Ok(100_000), |keys| keys.parse())?;
    match arguments.get(1) {
        Some(runtime) => {
            let figures = measure_here(runtime, keys)?;
            match arguments.get(2).map(String::as_str) {
                Some("json") => println!("{}", figures.json()),
                _ => println!("{figures}"),
            }
        }
        None => {
            println!("{keys} objects, the same reconciler, 16 runs at once\n{}", Figures::HEADER);
            for runtime in RUNTIMES {
                let child = Command::new(env::current_exe()?).args([&keys.to_string(), runtime]).output()?;
                if !child.status.success() {
                    return Err(String::from_utf8_lossy(&child.stderr).into_owned().into());
                }
                print!("{}", String::from_utf8_lossy(&child.stdout));
            }
        }
    }
    Ok(())
}

fn measure_here(runtime: &str, keys: u64) -> Result<Figures, Box<dyn Error + Send + Sync>> {
    let executor = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    executor.block_on(async {
        match runtime {
            "contiv" => measure::measure("contiv-controller", keys, contiv::start).await,
            "kube" => measure::measure("kube-runtime 5.0", keys, kube::start).await,
            other => Err(format!("no runtime {other}; there are {RUNTIMES:?}").into()),
        }
    })
}
