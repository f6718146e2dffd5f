//! The list of mutants, as `cargo mutants --list --json` prints it, with a number for each.

use std::ops::Range;

/// A mutant.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct Mutant {
    pub(crate) number: u32,
    pub(crate) file: String,
    pub(crate) genre: Genre,
    /// The code that takes the place of the span.
    pub(crate) replacement: String,
    pub(crate) span: Span,
}

/// What kind of code a mutant changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
pub(crate) enum Genre {
    /// The body of a function is a value.
    FnValue,
    BinaryOperator,
    UnaryOperator,
    /// An arm of a match is deleted.
    MatchArm,
    /// The guard of an arm is true or false.
    MatchArmGuard,
    /// A field is that of the struct update.
    StructField,
}

/// A part of a file. Lines and columns (of characters) begin with 1.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct Span {
    start: Position,
    end: Position,
}

#[derive(Debug, serde::Deserialize)]
struct Position {
    line: usize,
    column: usize,
}

impl Span {
    /// The same part in bytes; none if the file is another one.
    pub(crate) fn bytes(&self, source: &str) -> Option<Range<usize>> {
        Some(self.start.byte(source)?..self.end.byte(source)?)
    }
}

impl Position {
    fn byte(&self, source: &str) -> Option<usize> {
        let before: usize = source
            .split_inclusive('\n')
            .take(self.line.checked_sub(1)?)
            .map(str::len)
            .sum();
        let line = source.get(before..)?.lines().next()?;
        let column = self.column.checked_sub(1)?;
        let within = line
            .char_indices()
            .map(|(at, _)| at)
            .chain([line.len()])
            .nth(column)?;
        Some(before + within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: (usize, usize), to: (usize, usize)) -> Span {
        let position = |(line, column)| Position { line, column };
        Span {
            start: position(from),
            end: position(to),
        }
    }

    #[test]
    fn span_is_counted_in_characters() {
        let source = "fn a() {}\n/* é */ fn b() {}\n";
        let part = |span: Span| span.bytes(source).map(|bytes| &source[bytes]);
        assert_eq!(part(span((2, 9), (2, 11))), Some("fn"));
        assert_eq!(part(span((1, 8), (1, 10))), Some("{}"));
        assert_eq!(part(span((3, 1), (3, 2))), None);
        assert_eq!(part(span((1, 0), (1, 2))), None);
    }
}
