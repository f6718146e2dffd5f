//! Formats an error with its causes.

use super::table::printable;

/// The error and its causes, separated by `: `. Leaves out a cause whose text the error contains already.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// The first line of [`chain`]. It may have the answer of another machine in it, so control characters are escaped.
pub(crate) fn first_line(error: &anyhow::Error) -> String {
    let text = chain(error);
    printable(text.lines().next().unwrap_or_default().to_owned())
}
