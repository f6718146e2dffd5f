//! Splits and parses YAML documents, and JSON objects that follow each other.

use serde::de::IgnoredAny;
use serde_json::Value;
use serde_saphyr::budget::BudgetBreach;

/// Up to which line an error is reported with its line in the file: that requires parsing the document again, after as many
/// empty lines.
const NUMBERED_LINES: usize = 20_000;

/// One document and its first line, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Document<'a> {
    text: &'a str,
    line: usize,
}

/// Splits a file at its `---` lines, and between JSON objects, so that a broken document does not affect the others.
///
/// JSON objects may follow each other in any way, as in JSON lines: kubectl reads them too (`YAMLOrJSONDecoder`).
/// A `---` line also counts within an unindented block of text, which no Kubernetes object has. Documents with only comments
/// are left out.
pub(super) fn split(text: &str) -> Vec<Document<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut documents = Vec::new();
    let (mut start, mut start_line) = (0, 1);
    let mut end = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if is_separator(line) {
            documents.push(Document {
                text: &text[start..end],
                line: start_line,
            });
            // The line is part of what follows: a document can begin on it, as in `--- {}`.
            (start, start_line) = (end, index + 1);
        }
        end += line.len();
    }
    documents.push(Document {
        text: &text[start..],
        line: start_line,
    });
    let mut documents: Vec<Document<'_>> = documents.into_iter().flat_map(json_objects).collect();
    documents.retain(|document| !is_blank(document.text));
    documents
}

/// The JSON objects of a document, if it begins with one; otherwise the document. What is no JSON after the first object is a
/// document up to the next line that begins with a brace.
fn json_objects(document: Document<'_>) -> Vec<Document<'_>> {
    let mut objects = Vec::new();
    let Document {
        text: mut rest,
        mut line,
    } = document;
    loop {
        let end = match rest
            .trim_start()
            .starts_with('{')
            .then(|| end_of_json(rest))
            .flatten()
        {
            Some(end) => end,
            // YAML, whose maps may begin with a brace too.
            None if objects.is_empty() => return vec![document],
            None => rest.find("\n{").map_or(rest.len(), |newline| newline + 1),
        };
        let (object, after) = rest.split_at(end);
        objects.push(Document { text: object, line });
        if is_blank(after) {
            return objects;
        }
        line += object.matches('\n').count();
        rest = after;
    }
}

/// Where the first JSON value of the text ends; none if it does not begin with one.
fn end_of_json(text: &str) -> Option<usize> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    Some(values.byte_offset())
}

fn is_separator(line: &str) -> bool {
    line.strip_prefix("---")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
}

fn is_blank(document: &str) -> bool {
    document.lines().all(|line| {
        let line = line
            .strip_prefix("---")
            .filter(|_| is_separator(line))
            .unwrap_or(line)
            .trim();
        line.is_empty() || line.starts_with('#') || line == "..."
    })
}

/// Parses one document, YAML or JSON; none for `null`.
///
/// Quoted numbers stay text, duplicate keys are errors, and aliases are limited so that they cannot blow up the document.
/// `nodes` limits the number of scalars, lists and maps.
///
/// # Errors
/// The parser's error; [`describe`] formats it.
pub(super) fn parse(
    document: &Document<'_>,
    nodes: usize,
) -> Result<Option<Value>, serde_saphyr::Error> {
    let value: Value = parse_text(document.text, nodes)?;
    Ok(Some(value).filter(|value| !value.is_null()))
}

/// The error of an unreadable document, with line and column in the file.
pub(super) fn describe(
    document: &Document<'_>,
    nodes: usize,
    error: serde_saphyr::Error,
) -> String {
    // A document that exceeds the limit only through its aliases has its own error.
    if nodes < document.text.len()
        && let serde_saphyr::Error::Budget {
            breach: BudgetBreach::Nodes { .. },
            ..
        } = error
    {
        return format!("it has more than {nodes} scalars, lists and maps; split it");
    }
    match document.line {
        1 => error.to_string(),
        2..=NUMBERED_LINES => {
            // Parsed again with as many lines above as in the file, so that the error has the file's line.
            let padded = "\n".repeat(document.line - 1) + document.text;
            parse_text(&padded, nodes)
                .err()
                .unwrap_or(error)
                .to_string()
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
        // YAML 1.2: `yes` and `on` are words. In manifests they are labels more often than booleans.
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options)
}

#[cfg(test)]
mod tests;
