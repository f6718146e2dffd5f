//! inotify events of one file: those of its folder.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use futures::StreamExt;
use inotify::{EventMask, EventStream, Inotify, WatchMask};

use super::pending::Signal;

/// The link that is renamed when a mounted `ConfigMap` changes.
const CONFIG_MAP_LINK: &str = "..data";

const BUFFER_BYTES: usize = 16 << 10;

pub(super) struct Watcher {
    events: EventStream<Vec<u8>>,
    name: OsString,
}

impl Watcher {
    /// Watches the folder of a file.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let name = path
            .file_name()
            .ok_or_else(|| io::Error::other("this is not the path of a file"))?
            .to_owned();
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.map_or_else(|| PathBuf::from("."), Path::to_owned);
        let inotify = Inotify::init()?;
        let mask = WatchMask::ONLYDIR
            | WatchMask::CREATE
            | WatchMask::MODIFY
            | WatchMask::CLOSE_WRITE
            | WatchMask::MOVE
            | WatchMask::DELETE
            | WatchMask::DELETE_SELF
            | WatchMask::MOVE_SELF;
        inotify.watches().add(&folder, mask).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("the folder {} cannot be watched: {error}", folder.display()),
            )
        })?;
        Ok(Self {
            events: inotify.into_event_stream(vec![0; BUFFER_BYTES])?,
            name,
        })
    }

    /// Waits for the next relevant event.
    ///
    /// # Errors
    /// When the folder is gone, and the watch must be started again.
    pub(super) async fn next(&mut self) -> io::Result<Signal> {
        loop {
            let event = self
                .events
                .next()
                .await
                .ok_or(io::ErrorKind::UnexpectedEof)??;
            let mask = event.mask;
            if mask.contains(EventMask::Q_OVERFLOW) {
                return Ok(Signal::Complete);
            }
            if mask.intersects(EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::IGNORED) {
                return Err(io::Error::other("the folder it is in was moved or deleted"));
            }
            let name = event.name;
            let is_link = name.as_ref().is_some_and(|name| name == CONFIG_MAP_LINK);
            if is_link && mask.contains(EventMask::MOVED_TO) {
                return Ok(Signal::Complete);
            }
            if name.as_ref() != Some(&self.name) {
                continue;
            }
            if mask.intersects(EventMask::CLOSE_WRITE | EventMask::MOVED_TO) {
                return Ok(Signal::Complete);
            }
            if mask.intersects(EventMask::MODIFY) {
                return Ok(Signal::Written);
            }
            if mask.intersects(EventMask::CREATE | EventMask::DELETE | EventMask::MOVED_FROM) {
                return Ok(Signal::Replaced);
            }
        }
    }
}
