//! Damage to the mirror, as by a failing disk or a crash.

use std::{
    fs::OpenOptions,
    io::{Read, Seek, SeekFrom, Write},
    path::Path,
};

use contiv_tests::lab::{LabError, Result};
use rand::{RngExt, rngs::StdRng};

/// The largest number of bits flipped at the same time.
const MAX_BITS: usize = 16;

/// Truncates the file or flips some bits. Returns which.
pub(super) fn damage(file: &Path, random: &mut StdRng) -> Result<&'static str> {
    let failed = |error| LabError::system(format!("damage {}", file.display()), error);
    let mut content = OpenOptions::new()
        .read(true)
        .write(true)
        .open(file)
        .map_err(failed)?;
    let length = content.metadata().map_err(failed)?.len();
    if length == 0 || random.random() {
        content
            .set_len(random.random_range(0..=length))
            .map_err(failed)?;
        return Ok("the mirror truncated");
    }
    for _ in 0..random.random_range(1..=MAX_BITS) {
        let at = SeekFrom::Start(random.random_range(0..length));
        let mut byte = [0];
        content
            .seek(at)
            .and_then(|_| content.read_exact(&mut byte))
            .map_err(failed)?;
        byte[0] ^= 1 << random.random_range(0..8);
        content
            .seek(at)
            .and_then(|_| content.write_all(&byte))
            .map_err(failed)?;
    }
    Ok("bits of the mirror flipped")
}
