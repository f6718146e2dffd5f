//! Prints a list once, or repeatedly.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    io::{self, IsTerminal, Write},
    time::Duration,
};

use clap::Args;
use console::Term;

use super::keys::{Keys, ends};
use crate::cli::{Outcome, Terminal, chain};

/// The interval with --watch.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Whether to continue.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct WatchArgument {
    /// Go on: on a terminal the screen is kept up to date each second, until q, Esc or Ctrl-C; elsewhere new lines are added
    #[arg(short, long)]
    watch: bool,
}

/// The output at one time.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub(crate) out: String,
    /// Problems and notes.
    pub(crate) err: String,
    pub(crate) is_good: bool,
}

/// The maximum width of lines; none if unlimited.
pub(crate) fn width() -> Option<usize> {
    size().map(|(_, columns)| columns)
}

/// Rows and columns of the terminal that is standard output.
pub(crate) fn size() -> Option<(usize, usize)> {
    let terminal = Term::stdout();
    let size = terminal
        .is_term()
        .then(|| terminal.size_checked())
        .flatten();
    size.map(|(rows, columns)| (usize::from(rows), usize::from(columns)))
}

impl WatchArgument {
    /// Prints what `render` returns.
    ///
    /// # Errors
    /// When it fails the first time. Later errors are shown, and it is tried again. The outcome is that of the last output.
    pub(crate) fn run(
        self,
        terminal: &mut Terminal,
        mut render: impl FnMut() -> anyhow::Result<Frame>,
    ) -> anyhow::Result<Outcome> {
        let frame = render()?;
        if !self.watch {
            terminal.err.write_all(frame.err.as_bytes())?;
            terminal.out.write_all(frame.out.as_bytes())?;
            return Ok(Outcome::success_if(frame.is_good));
        }
        let (mut text, mut is_good) = (frame.err + &frame.out, frame.is_good);
        let (mut shown, mut keys) = (BTreeSet::new(), Keys::of_terminal());
        loop {
            if io::stdout().is_terminal() {
                redraw(&text, &mut terminal.out)?;
            } else {
                print_new_lines(&text, &mut shown, &mut terminal.out)?;
            }
            if keys.wait(REFRESH_INTERVAL).is_some_and(|key| ends(&key)) {
                return Ok(Outcome::success_if(is_good));
            }
            (text, is_good) = render().map_or_else(
                |error| (format!("error: {}\n", chain(&error)), false),
                |frame| (frame.err + &frame.out, frame.is_good),
            );
        }
    }
}

/// Overwrites the screen, without the flicker of clearing it first. Reports how many lines do not fit.
pub(crate) fn redraw(text: &str, out: &mut impl Write) -> io::Result<()> {
    let rows = size().map_or(usize::MAX, |(rows, _)| rows.saturating_sub(1));
    write!(out, "\x1b[H")?;
    for line in fitting(text, rows) {
        writeln!(out, "{line}\x1b[K")?;
    }
    write!(out, "\x1b[J")?;
    out.flush()
}

/// The lines that fit into this many rows; the last one has the number of omitted lines.
fn fitting(text: &str, rows: usize) -> Vec<Cow<'_, str>> {
    let count = text.lines().count();
    if count <= rows {
        return text.lines().map(Cow::from).collect();
    }
    let shown = rows.saturating_sub(1);
    let more = count - shown;
    let rest = format!(
        "… {more} more lines do not fit: choose fewer by name, -n or -l, or go without --watch"
    );
    text.lines()
        .take(shown)
        .map(Cow::from)
        .chain([Cow::from(rest)])
        .collect()
}

/// Prints the lines that were not printed the last time.
fn print_new_lines(
    text: &str,
    shown: &mut BTreeSet<String>,
    out: &mut impl Write,
) -> io::Result<()> {
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
    fn lines_beyond_screen_are_counted() {
        let text = "1\n2\n3\n4\n";
        assert_eq!(fitting(text, 4), ["1", "2", "3", "4"]);
        let cut = fitting(text, 3);
        assert_eq!(cut[..2], ["1", "2"]);
        assert!(
            cut.len() == 3 && cut[2].starts_with("… 2 more lines do not fit"),
            "{cut:?}"
        );
    }

    #[test]
    fn watch_into_a_file_writes_only_new_lines() {
        let (mut shown, mut out) = (BTreeSet::new(), Vec::new());
        for text in [
            "NAME\na 1\nb 1\n",
            "NAME\na 1\nb 1\n",
            "NAME\na 2\nb 1\n",
            "NAME\na 1\n",
        ] {
            print_new_lines(text, &mut shown, &mut out).unwrap();
        }
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "NAME\na 1\nb 1\na 2\na 1\n"
        );
    }
}
