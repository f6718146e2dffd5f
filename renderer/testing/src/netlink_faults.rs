//! Netlink faults by seed in front of the real kernel, to test what state the kernel ends up in.

use std::{borrow::Cow, io, sync::Arc};

use contiv_renderer::{
    kernel::{BackgroundTask, Kernel, NetlinkProtocol, NetlinkSocket, Subscription},
    linux::Linux,
};
use nix::errno::Errno;
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use super::FaultSwitch;

/// Errors of a kernel without memory, or busy.
const ERRORS: [Errno; 3] = [Errno::ENOBUFS, Errno::ENOMEM, Errno::EBUSY];

/// Bytes before the value of an attribute: its length and its kind.
const NLA_HDRLEN: usize = 4;

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
        Self {
            rate,
            random: StdRng::seed_from_u64(seed),
            switch,
            missing: Vec::new(),
        }
    }

    /// The kernel lacks these modules until the switch is turned off; nothing else fails.
    pub fn missing_modules(missing: Vec<MissingModule>, switch: FaultSwitch) -> Self {
        Self {
            missing,
            ..Self::new(0.0, 0, switch)
        }
    }

    /// The kernel of this network namespace; the first socket to it has these faults.
    pub fn into_kernel(self) -> Arc<dyn Kernel> {
        Arc::new(FaultyKernel(Mutex::new(Some(self))))
    }

    /// The request with the names of missing modules replaced by unknown names, so that the kernel itself answers as if it had
    /// no such module.
    fn without_modules<'a>(&self, request: &'a [u8]) -> Cow<'a, [u8]> {
        let mut request = Cow::Borrowed(request);
        if self.switch.is_off() {
            return request;
        }
        for (kind, name) in &self.missing {
            let mut attribute = Vec::new();
            #[allow(clippy::cast_possible_truncation)]
            attribute.extend_from_slice(&(NLA_HDRLEN as u16 + name.len() as u16 + 1).to_ne_bytes());
            attribute.extend_from_slice(&kind.to_ne_bytes());
            attribute.extend_from_slice(name.as_bytes());
            attribute.push(0);
            let places: Vec<usize> = (0..request.len())
                .filter(|at| request[*at..].starts_with(&attribute))
                .collect();
            for at in places {
                request.to_mut()[at + NLA_HDRLEN] = b'?';
            }
        }
        request
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

#[derive(Debug)]
struct FaultyKernel(Mutex<Option<NetlinkFaults>>);

impl Kernel for FaultyKernel {
    fn connect(&self, protocol: NetlinkProtocol) -> io::Result<Box<dyn NetlinkSocket>> {
        let inner = Linux.connect(protocol)?;
        Ok(match self.0.lock().take() {
            Some(faults) => Box::new(FaultySocket { inner, faults }),
            None => inner,
        })
    }

    fn listen(
        &self,
        protocol: NetlinkProtocol,
        groups: &[u32],
        own: u32,
    ) -> io::Result<Subscription> {
        Linux.listen(protocol, groups, own)
    }

    fn setting(&self, path: &str) -> io::Result<String> {
        Linux.setting(path)
    }

    fn set_setting(&self, path: &str, value: &str) -> io::Result<()> {
        Linux.set_setting(path, value)
    }

    fn settings(&self, folder: &str) -> io::Result<Vec<String>> {
        Linux.settings(folder)
    }

    fn spawn(&self, name: &str, task: Box<dyn BackgroundTask>) -> io::Result<()> {
        Linux.spawn(name, task)
    }
}

#[derive(Debug)]
struct FaultySocket {
    inner: Box<dyn NetlinkSocket>,
    faults: NetlinkFaults,
}

impl NetlinkSocket for FaultySocket {
    fn port(&self) -> u32 {
        self.inner.port()
    }

    fn send_limit(&self) -> usize {
        self.inner.send_limit()
    }

    /// The kernel refuses some requests.
    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.faults.error()?;
        self.inner.send(&self.faults.without_modules(request))
    }

    /// Some answers are not read and stay in the socket, are lost in an overflow, or only a part of them is read.
    fn receive(&mut self) -> io::Result<Vec<u8>> {
        self.faults.error()?;
        let mut received = self.inner.receive()?;
        if self.faults.happens() {
            return Err(Errno::ENOBUFS.into());
        }
        if self.faults.happens() {
            let length = self.faults.random.random_range(0..=received.len());
            received.truncate(length);
        }
        Ok(received)
    }

    fn discard(&mut self) {
        self.inner.discard();
    }
}
