//! Netlink that fails now and then, by seed, beside the real one: for tests of what becomes of the kernel then.

use std::io;

use nix::errno::Errno;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use crate::faulty::FaultSwitch;

/// What the kernel says when it has no room or is busy.
const ERRORS: [Errno; 3] = [Errno::ENOBUFS, Errno::ENOMEM, Errno::EBUSY];

/// Faults of a socket.
#[derive(Debug)]
pub struct NetlinkFaults {
    rate: f64,
    random: StdRng,
    switch: FaultSwitch,
}

impl NetlinkFaults {
    /// Each of the faults happens at so many of the calls, from 0 (never) to 1 (always). The same seed and the same calls
    /// have the same faults.
    pub fn new(rate: f64, seed: u64, switch: FaultSwitch) -> Self {
        Self { rate, random: StdRng::seed_from_u64(seed), switch }
    }

    /// The kernel does not take the request.
    pub(super) fn before_sending(&mut self) -> io::Result<()> {
        self.error()
    }

    /// The answer is not read, and stays where it is.
    pub(super) fn before_receiving(&mut self) -> io::Result<()> {
        self.error()
    }

    /// The answer gets lost for want of room, or only some of it is read.
    pub(super) fn after_receiving(&mut self, received: &mut Vec<u8>) -> io::Result<()> {
        if self.happens() {
            return Err(Errno::ENOBUFS.into());
        }
        if self.happens() {
            let length = self.random.random_range(0..=received.len());
            received.truncate(length);
        }
        Ok(())
    }

    fn error(&mut self) -> io::Result<()> {
        if !self.happens() {
            return Ok(());
        }
        let error = ERRORS.choose(&mut self.random).copied();
        Err(error.unwrap_or(Errno::ENOBUFS).into())
    }

    fn happens(&mut self) -> bool {
        self.random.random_bool(self.rate) && !self.switch.is_off()
    }
}
