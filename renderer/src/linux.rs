//! The kernel of this process's network namespace.

use std::{
    fs,
    io::{self, ErrorKind, Write},
    path::Path,
    sync::Arc,
    thread,
};

use crate::{
    kernel::{BackgroundTask, Kernel, NetlinkProtocol, NetlinkSocket, Subscription},
    netlink::{LinuxSocket, Listener},
};

/// The kernel of the calling thread's network namespace.
#[derive(Debug, Clone, Copy, Default)]
pub struct Linux;

impl Linux {
    /// The kernel, to be shared.
    pub fn shared() -> Arc<dyn Kernel> {
        Arc::new(Self)
    }
}

const SETTINGS: &str = "/proc/sys";

impl Kernel for Linux {
    fn connect(&self, protocol: NetlinkProtocol) -> io::Result<Box<dyn NetlinkSocket>> {
        Ok(Box::new(LinuxSocket::open(protocol)?))
    }

    fn listen(
        &self,
        protocol: NetlinkProtocol,
        groups: &[u32],
        own: u32,
    ) -> io::Result<Subscription> {
        let (listener, membership) = Listener::join(protocol, groups, own)?;
        Ok((Box::new(listener), Box::new(membership)))
    }

    fn setting(&self, path: &str) -> io::Result<String> {
        Ok(fs::read_to_string(Path::new(SETTINGS).join(path))?
            .trim_end()
            .to_owned())
    }

    fn set_setting(&self, path: &str, value: &str) -> io::Result<()> {
        fs::OpenOptions::new()
            .write(true)
            .open(Path::new(SETTINGS).join(path))?
            .write_all(value.as_bytes())
    }

    fn settings(&self, folder: &str) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(Path::new(SETTINGS).join(folder))?;
        let name = |entry: io::Result<fs::DirEntry>| {
            let name = entry?.file_name().into_string();
            name.map_err(|_| {
                io::Error::new(ErrorKind::InvalidData, "the name of a setting is not text")
            })
        };
        entries.map(name).collect()
    }

    fn spawn(&self, name: &str, task: Box<dyn BackgroundTask>) -> io::Result<()> {
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || task.run())
            .map(drop)
    }
}
