//! Names of new slices: deterministic, so that a repeated write is the same write.

use crate::{family::Family, service::Service};

use super::Ports;

/// How the names of all slices begin that are made here.
pub(crate) const NAME_PREFIX: &str = "contiv-external-";
/// Characters that Kubernetes allows in names, without vowels and ambiguous ones; as in its own generated names.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 8;
/// Kubernetes' maximum length of names.
const MAX_NAME_LENGTH: usize = 253;

/// An unused name.
pub(super) fn unused_name(
    service: &Service,
    family: Family,
    ports: &Ports,
    is_taken: impl Fn(&str) -> bool,
) -> String {
    let room = MAX_NAME_LENGTH - NAME_PREFIX.len() - 1 - SUFFIX_LENGTH;
    let base: String = service.name.chars().take(room).collect();
    let mut attempt = 0_u64;
    loop {
        let seed = format!("{} {} {ports} {attempt}", service.uid, family.as_str());
        let name = format!("{NAME_PREFIX}{base}-{}", suffix(fnv(seed.as_bytes())));
        if !is_taken(&name) {
            return name;
        }
        attempt += 1;
    }
}

/// 64-bit FNV-1a, whose results never change.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn suffix(mut hash: u64) -> String {
    let count = LETTERS.len() as u64;
    let mut letter = || {
        let index = usize::try_from(hash % count).unwrap_or_default();
        hash /= count;
        char::from(LETTERS[index])
    };
    (0..SUFFIX_LENGTH).map(|_| letter()).collect()
}
