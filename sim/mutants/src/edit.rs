//! Changes of a source file, one within another.

use std::ops::Range;

/// A change of a part of a file. None overlaps another except by being within it.
#[derive(Debug)]
pub(crate) struct Edit {
    /// The part, in bytes.
    pub(crate) at: Range<usize>,
    /// What takes its place.
    pub(crate) pieces: Vec<Piece>,
}

#[derive(Debug)]
pub(crate) enum Piece {
    Text(&'static str),
    /// Code that only a mutant runs.
    Mutant(u32, String),
    /// A part of the file, with the changes within it.
    Source(Range<usize>),
}

/// A part of the new file that belongs to a mutant.
#[derive(Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Region {
    pub(crate) file: String,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) mutant: u32,
    /// Whether only this mutant runs it; else it is the whole change of which the mutant is a part.
    pub(crate) is_own: bool,
}

/// The file with all changes, and the parts that belong to mutants.
pub(crate) fn apply(source: &str, file: &str, edits: &[Edit]) -> (String, Vec<Region>) {
    let mut sorted: Vec<&Edit> = edits.iter().collect();
    // An outer change before those within it.
    sorted.sort_by_key(|edit| (edit.at.start, std::cmp::Reverse(edit.at.end)));
    let mut output = Output {
        source,
        file,
        text: String::new(),
        regions: Vec::new(),
    };
    output.copy(0..source.len(), &sorted);
    (output.text, output.regions)
}

struct Output<'a> {
    source: &'a str,
    file: &'a str,
    text: String,
    regions: Vec<Region>,
}

impl Output<'_> {
    /// Copies a part of the file, with those of the changes (sorted) that are within it.
    fn copy(&mut self, part: Range<usize>, edits: &[&Edit]) {
        let mut at = part.start;
        for (index, edit) in edits.iter().enumerate() {
            if edit.at.start < at || edit.at.end > part.end {
                continue;
            }
            self.text.push_str(&self.source[at..edit.at.start]);
            self.change(edit, &edits[index + 1..]);
            at = edit.at.end;
        }
        self.text.push_str(&self.source[at..part.end]);
    }

    fn change(&mut self, edit: &Edit, rest: &[&Edit]) {
        let begin = self.text.len();
        let mut mutants = Vec::new();
        for piece in &edit.pieces {
            match piece {
                Piece::Text(text) => self.text.push_str(text),
                Piece::Source(part) => self.copy(part.clone(), rest),
                Piece::Mutant(number, code) => {
                    let start = self.text.len();
                    self.text.push_str(code);
                    mutants.push(*number);
                    self.region(start, *number, true);
                }
            }
        }
        mutants.dedup();
        for mutant in mutants {
            self.region(begin, mutant, false);
        }
    }

    fn region(&mut self, start: usize, mutant: u32, is_own: bool) {
        self.regions.push(Region {
            file: self.file.to_owned(),
            start,
            end: self.text.len(),
            mutant,
            is_own,
        });
    }
}
