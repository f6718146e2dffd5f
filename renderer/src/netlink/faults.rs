//! Netlink faults by seed in front of the real kernel, to test what state the kernel ends up in.

use std::{borrow::Cow, io};

use nix::errno::Errno;
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use crate::faulty::FaultSwitch;

/// Errors of a kernel without memory, or busy.
const ERRORS: [Errno; 3] = [Errno::ENOBUFS, Errno::ENOMEM, Errno::EBUSY];

/// Bytes before the value of an attribute: its length and its kind.
const ATTRIBUTE_HEADER: usize = 4;

/// The faults of a socket.
#[derive(Debug)]
pub struct NetlinkFaults {
    rate: f64,
    random: StdRng,
    switch: FaultSwitch,
    missing: Vec<MissingModule>,
}

/// A missing kernel module, by the attribute that asks for it: its type, and the name of an expression or a chain type.
pub type MissingModule = (u16, &'static str);

impl NetlinkFaults {
    /// Each fault happens at this rate of the calls, from 0 (never) to 1 (always). The same seed and the same calls produce the
    /// same faults.
    pub fn new(rate: f64, seed: u64, switch: FaultSwitch) -> Self {
        Self { rate, random: StdRng::seed_from_u64(seed), switch, missing: Vec::new() }
    }

    /// The kernel lacks these modules until the switch is turned off; nothing else fails.
    pub fn missing_modules(missing: Vec<MissingModule>, switch: FaultSwitch) -> Self {
        Self { missing, ..Self::new(0.0, 0, switch) }
    }

    /// The request with the names of missing modules replaced by unknown names, so that the kernel itself answers as if it had
    /// no such module.
    pub(super) fn without_modules<'a>(&self, request: &'a [u8]) -> Cow<'a, [u8]> {
        let mut request = Cow::Borrowed(request);
        if self.switch.is_off() {
            return request;
        }
        for (kind, name) in &self.missing {
            let mut attribute = Vec::new();
            #[allow(clippy::cast_possible_truncation)]
            attribute.extend_from_slice(&(ATTRIBUTE_HEADER as u16 + name.len() as u16 + 1).to_ne_bytes());
            attribute.extend_from_slice(&kind.to_ne_bytes());
            attribute.extend_from_slice(name.as_bytes());
            attribute.push(0);
            let places: Vec<usize> =
                (0..request.len()).filter(|at| request[*at..].starts_with(&attribute)).collect();
            for at in places {
                request.to_mut()[at + ATTRIBUTE_HEADER] = b'?';
            }
        }
        request
    }

    /// The kernel refuses the request.
    pub(super) fn before_sending(&mut self) -> io::Result<()> {
        self.error()
    }

    /// The answer is not read, and stays in the socket.
    pub(super) fn before_receiving(&mut self) -> io::Result<()> {
        self.error()
    }

    /// The answer is lost in an overflow, or only a part of it is read.
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
