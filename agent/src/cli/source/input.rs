//! Manifests from files, folders and standard input.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::Args;
use contiv_store::{
    Problem,
    manifest::{self, ParsedManifests},
};

/// How many warnings are printed, so that they do not hide errors.
const PRINTED_WARNINGS: usize = 20;

/// The manifests to read.
#[derive(Debug, Args)]
pub(crate) struct Manifests {
    /// A file, a folder with all below it, or - for standard input; several are read in this order
    #[arg(short = 'f', long = "filename", value_name = "PATH", num_args = 1.., required = true)]
    files: Vec<PathBuf>,

    /// Name each object of a kind that contiv does not use
    #[arg(short, long)]
    verbose: bool,
}

impl Manifests {
    /// Those of these paths.
    pub(crate) const fn new(files: Vec<PathBuf>, verbose: bool) -> Self {
        Self { files, verbose }
    }

    /// Reads all of them. An unreadable path is a problem like any other, and all other paths are read.
    pub(crate) fn read(&self) -> anyhow::Result<ParsedManifests> {
        read(&self.files)
    }

    /// Prints the problems and the skipped objects, a line each.
    pub(crate) fn report(&self, parsed: &ParsedManifests, err: &mut impl Write) -> io::Result<()> {
        print_findings(parsed, err)?;
        let skipped = parsed.skipped.len();
        if self.verbose {
            for object in &parsed.skipped {
                writeln!(err, "{object}: skipped: contiv does not use this kind")?;
            }
        } else if skipped > 0 {
            let objects = if skipped == 1 { "object" } else { "objects" };
            writeln!(
                err,
                "note: {skipped} {objects} of kinds that contiv does not use; -v names them"
            )?;
        }
        Ok(())
    }
}

/// Reads files in order.
pub(crate) fn read(files: &[PathBuf]) -> anyhow::Result<ParsedManifests> {
    let mut parsed = ParsedManifests::default();
    for file in files {
        let found = if file == Path::new("-") {
            let text = io::read_to_string(io::stdin()).context("failed to read standard input")?;
            manifest::parse_file("-", &text)
        } else {
            match manifest::load_path(file) {
                Ok(found) => found,
                Err(error) => {
                    let source = file.display().to_string();
                    let problem = Problem {
                        source,
                        object: None,
                        field: None,
                        reason: error.to_string(),
                        is_warning: false,
                    };
                    ParsedManifests {
                        problems: vec![problem],
                        is_incomplete: true,
                        ..ParsedManifests::default()
                    }
                }
            }
        };
        parsed.append(found);
    }
    Ok(parsed)
}

/// A line for each warning and each problem.
pub(crate) fn print_findings(parsed: &ParsedManifests, err: &mut impl Write) -> io::Result<()> {
    for warning in parsed.warnings.iter().take(PRINTED_WARNINGS) {
        writeln!(err, "warning: {warning}")?;
    }
    if let Some(more) = parsed
        .warnings
        .len()
        .checked_sub(PRINTED_WARNINGS)
        .filter(|more| *more > 0)
    {
        writeln!(err, "warning: {more} more fields that have no effect")?;
    }
    print_problems(&parsed.problems, err)
}

/// A line for each problem, with file, object and field if they are known.
pub(crate) fn print_problems(problems: &[Problem], err: &mut impl Write) -> io::Result<()> {
    problems.iter().try_for_each(|problem| {
        let kind = if problem.is_warning { "warning: " } else { "" };
        writeln!(err, "{kind}{problem}")
    })
}
