//! Printing once, or again and again.

use std::{
    collections::BTreeSet,
    io::{self, IsTerminal, Write},
    thread,
    time::Duration,
};

use clap::Args;
use console::Term;

use super::{Outcome, Terminal};

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Whether to go on looking.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct WatchArgument {
    /// Go on: on a terminal the screen is kept up to date each second, elsewhere new lines are added
    #[arg(short, long)]
    watch: bool,
}

/// What is printed at one time.
#[derive(Debug, Default)]
pub(super) struct Frame {
    pub(super) out: String,
    /// What is wrong, or worth a note.
    pub(super) err: String,
    pub(super) is_good: bool,
}

/// How wide lines may be; none where nobody minds.
pub(super) fn width() -> Option<usize> {
    size().map(|(_, columns)| columns)
}

/// Rows and columns of the terminal that is standard output.
pub(super) fn size() -> Option<(usize, usize)> {
    let terminal = Term::stdout();
    let size = terminal.is_term().then(|| terminal.size_checked()).flatten();
    size.map(|(rows, columns)| (usize::from(rows), usize::from(columns)))
}

impl WatchArgument {
    /// Prints what `look` gives.
    ///
    /// # Errors
    /// When it fails the first time. Later the error is shown, and it is asked again.
    pub(super) fn run(
        self,
        terminal: &mut Terminal,
        mut look: impl FnMut() -> anyhow::Result<Frame>,
    ) -> anyhow::Result<Outcome> {
        let frame = look()?;
        if !self.watch {
            terminal.err.write_all(frame.err.as_bytes())?;
            terminal.out.write_all(frame.out.as_bytes())?;
            return Ok(Outcome::good_if(frame.is_good));
        }
        let mut text = frame.err + &frame.out;
        let mut shown = BTreeSet::new();
        loop {
            if io::stdout().is_terminal() {
                redraw(&text, &mut terminal.out)?;
            } else {
                print_new_lines(&text, &mut shown, &mut terminal.out)?;
            }
            thread::sleep(INTERVAL);
            text = look().map_or_else(|error| format!("error: {error:#}\n"), |frame| frame.err + &frame.out);
        }
    }
}

/// Overwrites the screen, without the flicker of clearing it first. What does not fit is left out.
pub(super) fn redraw(text: &str, out: &mut impl Write) -> io::Result<()> {
    let rows = size().map_or(usize::MAX, |(rows, _)| rows.saturating_sub(1));
    write!(out, "\x1b[H")?;
    for line in text.lines().take(rows) {
        writeln!(out, "{line}\x1b[K")?;
    }
    write!(out, "\x1b[J")?;
    out.flush()
}

/// Prints the lines that were not there the last time.
fn print_new_lines(text: &str, shown: &mut BTreeSet<String>, out: &mut impl Write) -> io::Result<()> {
    for line in text.lines().filter(|line| !shown.contains(*line)) {
        writeln!(out, "{line}")?;
    }
    *shown = text.lines().map(str::to_owned).collect();
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn into_a_file_go_only_lines_that_are_new() {
        let (mut shown, mut out) = (BTreeSet::new(), Vec::new());
        for text in ["NAME\na 1\nb 1\n", "NAME\na 1\nb 1\n", "NAME\na 2\nb 1\n", "NAME\na 1\n"] {
            print_new_lines(text, &mut shown, &mut out).unwrap();
        }
        assert_eq!(String::from_utf8(out).unwrap(), "NAME\na 1\nb 1\na 2\na 1\n");
    }
}
