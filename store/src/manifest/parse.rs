//! Reads the text of a file.

use super::{
    document, object,
    parsed::{MAX_REPORTED_PROBLEMS, ParsedManifests},
};
use crate::Problem;

/// The limit of scalars, lists and maps in a document of a folder: about that of 20 MiB of manifests. Otherwise a text with
/// seven bytes per map would take a hundred times its size in memory.
pub(crate) const FOLDER_NODES: usize = 2_000_000;

/// Parses the text of one file. `name` is its name in problems.
pub fn parse_file(name: &str, text: &str) -> ParsedManifests {
    parse_file_within(name, text, usize::MAX)
}

/// Like [`parse_file`], with a limit of scalars, lists and maps in a document.
pub(crate) fn parse_file_within(name: &str, text: &str, nodes: usize) -> ParsedManifests {
    let mut parsed = ParsedManifests::default();
    let documents = document::split(text);
    let is_single = documents.len() == 1;
    for (position, document) in documents.into_iter().enumerate() {
        let source = if is_single {
            name.to_owned()
        } else {
            format!("{name}:{}", position + 1)
        };
        match document::parse(&document, nodes) {
            Ok(Some(value)) => object::read(&source, value, &mut parsed),
            Ok(None) => {}
            Err(error) => {
                parsed.is_incomplete = true;
                // Its description is expensive.
                if parsed.problems.len() <= MAX_REPORTED_PROBLEMS {
                    let reason = document::describe(&document, nodes, error);
                    parsed.problems.push(Problem {
                        source,
                        object: None,
                        field: None,
                        reason,
                        is_warning: false,
                    });
                }
            }
        }
        parsed.truncate_problems();
    }
    parsed.drop_duplicates();
    parsed.truncate_problems();
    if parsed.problems.len() > MAX_REPORTED_PROBLEMS {
        parsed.problems.truncate(MAX_REPORTED_PROBLEMS);
        let reason = format!(
            "only the first {MAX_REPORTED_PROBLEMS} problems of this file are reported; there are more"
        );
        let source = name.to_owned();
        parsed.problems.push(Problem {
            source,
            object: None,
            field: None,
            reason,
            is_warning: false,
        });
    }
    parsed
}
