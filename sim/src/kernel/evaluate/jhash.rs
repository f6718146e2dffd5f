//! The kernel's hash of bytes: `include/linux/jhash.h`, by Bob Jenkins.

/// The hash of bytes, read in host byte order.
pub(super) fn jhash(bytes: &[u8], seed: u32) -> u32 {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let begin = 0xdead_beef_u32.wrapping_add(length).wrapping_add(seed);
    let (mut a, mut b, mut c) = (begin, begin, begin);
    let mut rest = bytes;
    while rest.len() > 12 {
        let (block, after) = rest.split_at(12);
        add(block, [&mut a, &mut b, &mut c]);
        mix([&mut a, &mut b, &mut c]);
        rest = after;
    }
    if !rest.is_empty() {
        add(rest, [&mut a, &mut b, &mut c]);
        finish([&mut a, &mut b, &mut c]);
    }
    c
}

/// A number below `modulus`: `reciprocal_scale`.
pub(super) const fn scale(hash: u32, modulus: u32) -> u32 {
    ((hash as u64 * modulus as u64) >> 32) as u32
}

/// Adds up to twelve bytes, padded with zeros.
fn add(bytes: &[u8], to: [&mut u32; 3]) {
    let mut block = [0; 12];
    block[..bytes.len()].copy_from_slice(bytes);
    for (word, to) in block.chunks_exact(4).zip(to) {
        let word = word.first_chunk().copied().map_or(0, u32::from_le_bytes);
        *to = to.wrapping_add(word);
    }
}

fn mix([a, b, c]: [&mut u32; 3]) {
    let step = |x: &mut u32, y: &mut u32, z: &mut u32, by| {
        *x = x.wrapping_sub(*z) ^ z.rotate_left(by);
        *z = z.wrapping_add(*y);
    };
    step(a, b, c, 4);
    step(b, c, a, 6);
    step(c, a, b, 8);
    step(a, b, c, 16);
    step(b, c, a, 19);
    step(c, a, b, 4);
}

fn finish([a, b, c]: [&mut u32; 3]) {
    let step = |x: &mut u32, y: u32, by| *x = (*x ^ y).wrapping_sub(y.rotate_left(by));
    step(c, *b, 14);
    step(a, *c, 11);
    step(b, *a, 25);
    step(c, *b, 16);
    step(a, *c, 4);
    step(b, *a, 14);
    step(c, *b, 24);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jhash_depends_on_every_byte() {
        assert_eq!(jhash(&[], 0), 0xdead_beef);
        let hashes = [
            jhash(&[1, 2, 3, 4], 0xc047),
            jhash(&[1, 2, 3, 5], 0xc047),
            jhash(&[1, 2, 3, 4], 0),
        ];
        assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2]);
        assert!((0..1000_u32).all(|number| scale(jhash(&number.to_ne_bytes(), 7), 5) < 5));
    }
}
