//! The archive: parts are added, and missing ones are listed in a separate part.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use flate2::{Compression, write::GzEncoder};
use jiff::Timestamp;
use tar::{Builder, Header};

/// All parts are in a folder of this name.
const FOLDER: &str = "contiv-support";
const MISSING: &str = "missing.txt";

/// A `.tar.gz` file under construction.
pub(super) struct Archive {
    tar: Builder<GzEncoder<File>>,
    time: u64,
    missing: Vec<String>,
}

impl Archive {
    /// A new file that only its owner can read.
    pub(super) fn create(path: &Path, now: Timestamp) -> io::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        let tar = Builder::new(GzEncoder::new(file, Compression::default()));
        Ok(Self {
            tar,
            time: now.as_second().try_into().unwrap_or(0),
            missing: Vec::new(),
        })
    }

    /// Adds a part, or the reason why it is missing.
    pub(super) fn add(&mut self, name: &str, part: anyhow::Result<String>) -> io::Result<()> {
        match part {
            Ok(text) => self.append(name, &text),
            Err(error) => {
                self.add_missing(name, format_args!("{error:#}"));
                Ok(())
            }
        }
    }

    /// Adds a part that may be incomplete, and lists the missing pieces.
    pub(super) fn add_partial(
        &mut self,
        name: &str,
        text: &str,
        problems: &[String],
    ) -> io::Result<()> {
        for problem in problems {
            self.add_missing(name, format_args!("{problem}"));
        }
        if text.is_empty() {
            Ok(())
        } else {
            self.append(name, text)
        }
    }

    /// Lists a part as missing.
    pub(super) fn add_missing(&mut self, name: &str, reason: fmt::Arguments<'_>) {
        self.missing.push(format!("{name}: {reason}"));
    }

    /// Completes the file. Returns the number of entries in the list of missing parts.
    pub(super) fn finish(mut self) -> io::Result<usize> {
        let missing = std::mem::take(&mut self.missing);
        if !missing.is_empty() {
            self.append(MISSING, &(missing.join("\n") + "\n"))?;
        }
        let mut file = self.tar.into_inner()?.finish()?;
        file.flush()?;
        Ok(missing.len())
    }

    fn append(&mut self, name: &str, text: &str) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.time);
        header.set_cksum();
        self.tar
            .append_data(&mut header, format!("{FOLDER}/{name}"), text.as_bytes())
    }
}
