//! Keeps every event on one line: text from the store, or from a file's name, must not look like another event, nor control the
//! reader's terminal.

use std::io::{self, Write};

/// Passes events on with their control characters escaped.
#[derive(Debug)]
pub(super) struct ControlCharacterEscaper<W> {
    inner: W,
    /// The event has colours, which begin with an escape character. Those of values have been escaped before.
    has_colours: bool,
}

impl<W: Write> ControlCharacterEscaper<W> {
    pub(super) const fn new(inner: W, has_colours: bool) -> Self {
        Self { inner, has_colours }
    }
}

impl<W: Write> Write for ControlCharacterEscaper<W> {
    /// Called once for each event.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let is_bad = |c: char| c.is_control() && !(self.has_colours && c == '\x1b');
        if line.contains(is_bad) {
            let mut safe = String::with_capacity(line.len() + 8);
            for c in line.chars() {
                if is_bad(c) {
                    safe.extend(c.escape_default());
                } else {
                    safe.push(c);
                }
            }
            safe.push('\n');
            self.inner.write_all(safe.as_bytes())?;
        } else {
            self.inner.write_all(event)?;
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    struct Written(Sender<Vec<u8>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn event_with_control_characters_stays_on_one_line() {
        let (writer, written) = channel();
        let lines = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || ControlCharacterEscaper::new(Written(writer.clone()), false))
            .finish();
        let hostile = "web\n2026-01-01T00:00:00Z ERROR all is lost\r\x1b[2J\x07\u{9b}2J\u{85}";
        tracing::subscriber::with_default(lines, || {
            tracing::warn!(%hostile, field = hostile, "the message {hostile}");
            tracing::info!("the next");
        });
        let text = String::from_utf8(written.try_iter().flatten().collect()).unwrap();
        assert_eq!(text.lines().count(), 2, "{text:?}");
        assert!(
            text.lines().all(|line| !line.contains(char::is_control)),
            "{text:?}"
        );
        assert!(text.contains("all is lost"), "{text:?}");
    }
}
