//! YAML documents: where one ends and the next begins, and what one holds.

use serde_json::Value;
use serde_saphyr::budget::BudgetBreach;

/// Up to which line an error is told with its line in the file: it takes reading the document again, below as many empty lines.
const NUMBERED_LINES: usize = 20_000;

/// One document and the line it begins on, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Document<'a> {
    text: &'a str,
    line: usize,
}

/// Cuts a file at its `---` lines, so that a broken document does not take the others with it.
///
/// A `---` line is one also within a block of text that is not indented, which no Kubernetes object has. Documents
/// that hold nothing but comments are left out.
pub(super) fn split(text: &str) -> Vec<Document<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut documents = Vec::new();
    let (mut start, mut start_line) = (0, 1);
    let mut end = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if is_separator(line) {
            documents.push(Document { text: &text[start..end], line: start_line });
            // The line stays with what follows: a document can begin on it, as in `--- {}`.
            (start, start_line) = (end, index + 1);
        }
        end += line.len();
    }
    documents.push(Document { text: &text[start..], line: start_line });
    documents.retain(|document| !is_blank(document.text));
    documents
}

fn is_separator(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
}

fn is_blank(document: &str) -> bool {
    document.lines().all(|line| {
        let line = line.strip_prefix("---").filter(|_| is_separator(line)).unwrap_or(line).trim();
        line.is_empty() || line.starts_with('#') || line == "..."
    })
}

/// Reads one document, YAML or JSON. Nothing but `null` is nothing.
///
/// Quoted numbers stay text, a key given twice is an error, and aliases cannot blow the document up: what they repeat
/// is limited. `nodes` is how many scalars, lists and maps there may be.
///
/// # Errors
/// What is wrong; [`describe`] says it.
pub(super) fn parse(document: &Document<'_>, nodes: usize) -> Result<Option<Value>, serde_saphyr::Error> {
    let value: Value = parse_text(document.text, nodes)?;
    Ok(Some(value).filter(|value| !value.is_null()))
}

/// What is wrong with a document that cannot be read, with line and column in the file.
pub(super) fn describe(document: &Document<'_>, nodes: usize, error: serde_saphyr::Error) -> String {
    // A document that has more only by its aliases says so itself.
    if nodes < document.text.len()
        && let serde_saphyr::Error::Budget { breach: BudgetBreach::Nodes { .. }, .. } = error
    {
        return format!("it has more than {nodes} scalars, lists and maps; split it");
    }
    match document.line {
        1 => error.to_string(),
        2..=NUMBERED_LINES => {
            // Once more with as many lines above as in the file, so that the error names the file's line.
            let padded = "\n".repeat(document.line - 1) + document.text;
            parse_text(&padded, nodes).err().unwrap_or(error).to_string()
        }
        line => format!("in the document that begins on line {line}: {error}"),
    }
}

fn parse_text(text: &str, nodes: usize) -> Result<Value, serde_saphyr::Error> {
    let size = text.len().max(10_000);
    let options = serde_saphyr::options! {
        // Dumps of clusters are large, so the limits grow with the text: only aliases can exceed them.
        budget: serde_saphyr::budget! {
            max_events: size.saturating_mul(2),
            max_nodes: size.min(nodes),
            max_total_scalar_bytes: size.saturating_mul(2),
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
        // YAML 1.2: `yes` and `on` are words. In manifests they are labels more often than truth values.
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options)
}

#[cfg(test)]
mod tests;
