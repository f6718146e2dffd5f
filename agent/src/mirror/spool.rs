//! Stores a list that waits to be saved on disk: it is as large as the store, and nothing else needs it any more.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, ErrorKind, Read, Seek, Write},
    path::Path,
};

use contiv_store::Entry;

/// More than the length of any key or value.
const MAX_FIELD_BYTES: usize = 64 << 20;

/// The entries of a list, in an unlinked file: it disappears with the process.
#[derive(Debug)]
pub(super) struct Spool {
    file: File,
}

impl Spool {
    /// Writes the entries to a file in this folder.
    pub(super) fn new(folder: &Path, entries: &[Entry]) -> io::Result<Self> {
        let mut writer = BufWriter::with_capacity(1 << 16, tempfile::tempfile_in(folder)?);
        for Entry { key, value, create_revision, mod_revision } in entries {
            for bytes in [key.as_bytes(), value] {
                writer.write_all(&bytes.len().to_le_bytes())?;
                writer.write_all(bytes)?;
            }
            writer.write_all(&create_revision.to_le_bytes())?;
            writer.write_all(&mod_revision.to_le_bytes())?;
        }
        Ok(Self { file: writer.into_inner().map_err(io::IntoInnerError::into_error)? })
    }

    /// The entries in the original order.
    pub(super) fn into_entries(mut self) -> impl Iterator<Item = io::Result<Entry>> {
        let mut rewound = Some(self.file.rewind());
        let mut reader = BufReader::with_capacity(1 << 16, self.file);
        std::iter::from_fn(move || {
            if let Some(Err(error)) = rewound.take() {
                return Some(Err(error));
            }
            entry(&mut reader).transpose()
        })
    }
}

/// The next entry; none at the end.
fn entry(reader: &mut BufReader<File>) -> io::Result<Option<Entry>> {
    if io::BufRead::fill_buf(reader)?.is_empty() {
        return Ok(None);
    }
    let key =
        String::from_utf8(bytes(reader)?).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
    let value = bytes(reader)?.into();
    let create_revision = i64::from_le_bytes(array(reader)?);
    Ok(Some(Entry { key, value, create_revision, mod_revision: i64::from_le_bytes(array(reader)?) }))
}

fn bytes(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let length = usize::from_le_bytes(array(reader)?);
    if length > MAX_FIELD_BYTES {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn array<const N: usize>(reader: &mut impl Read) -> io::Result<[u8; N]> {
    let mut array = [0; N];
    reader.read_exact(&mut array)?;
    Ok(array)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spool_returns_what_was_written_and_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let entry = |key: &str, value: Vec<u8>, mod_revision| Entry {
            key: key.to_owned(),
            value: value.into(),
            create_revision: -1,
            mod_revision,
        };
        let entries =
            vec![entry("", vec![], i64::MAX), entry("/a", vec![7; 200_000], 2), entry("/\u{e9}", vec![0], 3)];
        let spool = Spool::new(folder.path(), &entries).unwrap();
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
        assert_eq!(spool.into_entries().collect::<io::Result<Vec<_>>>().unwrap(), entries);
    }

    #[test]
    fn half_entry_is_error_and_not_end() {
        let folder = tempfile::tempdir().unwrap();
        let entry =
            Entry { key: "/a".to_owned(), value: vec![7; 100].into(), create_revision: 1, mod_revision: 1 };
        let spool = Spool::new(folder.path(), std::slice::from_ref(&entry)).unwrap();
        spool.file.set_len(50).unwrap();
        assert!(spool.into_entries().next().unwrap().is_err());
    }
}
