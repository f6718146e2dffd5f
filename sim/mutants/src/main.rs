//! Plants all mutants of a list in a copy of the sources, each behind a switch: `scripts/mutants --sample` starts it.
//!
//! A mutant that is compiled alone costs a build of its crate and of every crate above it. Here one build has hundreds of mutants, and
//! `PLANTED_MUTANT=7` in the environment of a program switches the seventh on.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a program for a terminal"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::{edit::Region, list::Mutant};

mod edit;
mod list;
mod place;

/// The module with the switch, which each mutated crate gets.
const SWITCH: &str = include_str!("switch.rs");

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Syntax { path: PathBuf, source: syn::Error },
    #[error("the list of mutants: {0}")]
    List(#[from] serde_json::Error),
}

/// What was planted, and where.
#[derive(Debug, Default, serde::Serialize)]
struct Report {
    /// The parts of the new sources that belong to one mutant: an error of the compiler in one of them is an error of that mutant.
    regions: Vec<Region>,
    /// Mutants that cannot be switched, with the reason.
    unplaced: BTreeMap<u32, &'static str>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [list, tree] = arguments.as_slice() else {
        eprintln!(
            "usage: contiv-mutants LIST TREE\n\nPlants the mutants of LIST (JSON) in the sources below TREE; prints where."
        );
        return ExitCode::from(2);
    };
    match plant(Path::new(list), Path::new(tree))
        .and_then(|report| Ok(serde_json::to_string(&report)?))
    {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn plant(list: &Path, tree: &Path) -> Result<Report, Error> {
    let mutants: Vec<Mutant> = serde_json::from_str(&read(list)?)?;
    let mut by_file: BTreeMap<&str, Vec<&Mutant>> = BTreeMap::new();
    for mutant in &mutants {
        by_file.entry(&mutant.file).or_default().push(mutant);
    }
    let mut report = Report::default();
    for (file, mutants) in &by_file {
        let path = tree.join(file);
        let source = read(&path)?;
        let (edits, unplaced) = place::edits(&source, mutants).map_err(|source| Error::Syntax {
            path: path.clone(),
            source,
        })?;
        let (text, regions) = edit::apply(&source, file, &edits);
        write(&path, &text)?;
        report.regions.extend(regions);
        report.unplaced.extend(unplaced);
    }
    let crates: BTreeSet<&str> = by_file
        .keys()
        .filter_map(|file| file.split_once("/src/"))
        .map(|(name, _)| name)
        .collect();
    for name in crates {
        let path = tree.join(name).join("src/lib.rs");
        let root = read(&path)?;
        write(&path, &format!("{root}\n{SWITCH}"))?;
    }
    Ok(report)
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|source| Error::File {
        path: path.to_owned(),
        source,
    })
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|source| Error::File {
        path: path.to_owned(),
        source,
    })
}
