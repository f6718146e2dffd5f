//! A checksum over entries that detects lost and changed ones.

use std::fmt;

/// The number of entries, and the sum of their checksums, independent of their order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EntriesChecksum {
    pub(super) count: u64,
    pub(super) total: u64,
}

impl EntriesChecksum {
    pub(super) fn add(&mut self, key: &str, row: (i64, i64, &[u8])) {
        self.count = self.count.wrapping_add(1);
        self.total = self.total.wrapping_add(checksum(key, row));
    }

    pub(super) fn remove(&mut self, key: &str, row: (i64, i64, &[u8])) {
        self.count = self.count.wrapping_sub(1);
        self.total = self.total.wrapping_sub(checksum(key, row));
    }
}

impl fmt::Display for EntriesChecksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} entries with sum {:016x}", self.count, self.total)
    }
}

fn checksum(key: &str, (create_revision, mod_revision, value): (i64, i64, &[u8])) -> u64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key.as_bytes());
    // A key contains no zero byte, so key and value are separated.
    hasher.update(&[0]);
    hasher.update(&create_revision.to_le_bytes());
    hasher.update(&mod_revision.to_le_bytes());
    hasher.update(value);
    u64::from(hasher.finalize())
}
