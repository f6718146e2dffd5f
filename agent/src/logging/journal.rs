//! Log lines for journald, each with its priority. Source: `sd-daemon(3)` for the prefix, `systemd.exec(5)` for
//! `JOURNAL_STREAM`.

use std::{
    env, fs,
    io::{self, Write},
    os::unix::fs::MetadataExt,
};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use super::{LogLines, one_line::ControlCharacterEscaper};

/// True if standard error goes to the journal: the environment names the device and inode of the stream.
pub(super) fn reads_standard_error() -> bool {
    let Ok(stream) = env::var("JOURNAL_STREAM") else {
        return false;
    };
    fs::metadata("/proc/self/fd/2")
        .is_ok_and(|file| stream == format!("{}:{}", file.dev(), file.ino()))
}

/// Lines for the journal, each with its priority.
#[derive(Debug, Clone)]
pub(super) struct Journal(LogLines);

impl Journal {
    pub(super) const fn new(lines: LogLines) -> Self {
        Self(lines)
    }

    fn line(&self, level: Level) -> Line<ControlCharacterEscaper<LogLines>> {
        Line {
            priority: priority(level),
            out: ControlCharacterEscaper::new(self.0.clone(), false),
        }
    }
}

impl<'a> MakeWriter<'a> for Journal {
    type Writer = Line<ControlCharacterEscaper<LogLines>>;

    fn make_writer(&'a self) -> Self::Writer {
        self.line(Level::INFO)
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Self::Writer {
        self.line(*metadata.level())
    }
}

/// The priorities of `syslog(3)`.
const fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// Writes one event. Each line of it gets the priority: the journal reads them separately.
#[derive(Debug)]
pub(super) struct Line<W> {
    priority: u8,
    out: W,
}

impl<W: Write> Write for Line<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // All lines of the event are written at once, so that those of another thread do not come between.
        let mut text = Vec::with_capacity(bytes.len() + 8);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            write!(text, "<{}>", self.priority)?;
            text.extend_from_slice(line);
        }
        self.out.write_all(&text)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_begins_with_its_priority() {
        let mut line = Line {
            priority: priority(Level::WARN),
            out: Vec::new(),
        };
        line.write_all(b"one\ntwo\n").unwrap();
        assert_eq!(line.out, b"<4>one\n<4>two\n");
    }
}
