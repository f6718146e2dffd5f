//! inotify: the watched folders, and the meaning of events.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use futures::StreamExt;
use inotify::{EventMask, EventOwned, EventStream, Inotify, WatchDescriptor, WatchMask, Watches};

use super::pending::Signal;
use crate::manifest::walk::{is_hidden, is_manifest};

/// The link that is renamed when a mounted `ConfigMap` changes.
const CONFIG_MAP_LINK: &str = "..data";

const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;

/// Large enough for several hundred events.
const BUFFER_BYTES: usize = 64 << 10;

/// The object of a watch descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Watched {
    /// A folder with manifests.
    Folder(PathBuf),
    /// A file that can be written to through another path than those of its manifest.
    Target(Vec<PathBuf>),
    /// The folder that contains the root: the root may be a link that is changed.
    Parent,
}

/// The watches on one tree of folders.
pub(super) struct Watcher {
    events: EventStream<Vec<u8>>,
    root_name: Option<OsString>,
    watches: Watches,
    watched: BTreeMap<WatchDescriptor, Watched>,
    /// The file that was renamed last, with the cookie that connects it to its new name.
    renamed: Option<(u32, PathBuf)>,
    /// Further meanings of the last event.
    also: VecDeque<Signal>,
}

impl Watcher {
    /// A watcher that watches only the folder that contains `root`. Must be called in a tokio runtime.
    pub(super) fn new(root: &Path) -> io::Result<Self> {
        let inotify = Inotify::init().map_err(explain)?;
        let events = inotify.into_event_stream(vec![0; BUFFER_BYTES])?;
        let root_name = root.file_name().map(Into::into);
        Ok(Self {
            watches: events.watches(),
            events,
            root_name,
            watched: BTreeMap::new(),
            renamed: None,
            also: VecDeque::new(),
        })
    }

    /// Waits for the next event. None if it has no meaning.
    pub(super) async fn next(&mut self) -> io::Result<Option<Signal>> {
        if let Some(signal) = self.also.pop_front() {
            return Ok(Some(signal));
        }
        match self.events.next().await {
            Some(Ok(event)) => Ok(self.signal(event)),
            Some(Err(error)) => Err(error),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Starts to collect the new set of watches.
    pub(super) fn renew(&mut self) -> WatchRenewal<'_> {
        WatchRenewal {
            watcher: self,
            watched: BTreeMap::new(),
        }
    }

    fn signal(&mut self, event: EventOwned) -> Option<Signal> {
        let mask = event.mask;
        self.also.extend(self.signals(&event.wd, mask, event.name));
        let signal = self.also.pop_front()?;
        match signal {
            Signal::Removed(ref path) if mask.contains(EventMask::MOVED_FROM) => {
                self.renamed = Some((event.cookie, path.clone()));
            }
            Signal::Complete(ref to) if mask.contains(EventMask::MOVED_TO) => {
                if let Some((_, from)) = self.renamed.take_if(|(cookie, _)| *cookie == event.cookie)
                {
                    return Some(Signal::Renamed {
                        from,
                        to: to.clone(),
                    });
                }
            }
            _ => {}
        }
        Some(signal)
    }

    fn signals(
        &self,
        wd: &WatchDescriptor,
        mask: EventMask,
        name: Option<OsString>,
    ) -> Vec<Signal> {
        if mask.contains(EventMask::Q_OVERFLOW) {
            return vec![Signal::EventsLost];
        }
        let Some(watched) = self.watched.get(wd) else {
            return Vec::new();
        };
        let one = match (watched, name) {
            (Watched::Folder(folder), Some(name)) => return signals(folder.join(name), mask),
            // The folder itself. Its parent reports that too, unless it is the root.
            (Watched::Folder(_), None) => {
                let is_gone = mask
                    .intersects(EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::UNMOUNT);
                is_gone.then_some(Signal::FoldersMayHaveChanged)
            }
            (Watched::Target(paths), _) if mask.contains(EventMask::MODIFY) => {
                return paths.iter().cloned().map(Signal::Written).collect();
            }
            (Watched::Target(paths), _) if mask.contains(EventMask::CLOSE_WRITE) => {
                return paths.iter().cloned().map(Signal::Complete).collect();
            }
            (Watched::Target(_), _) => Some(Signal::FoldersMayHaveChanged),
            (Watched::Parent, name) => {
                (name.is_some() && name == self.root_name).then_some(Signal::FoldersMayHaveChanged)
            }
        };
        one.into_iter().collect()
    }
}

/// The system's errors for inotify's limits name neither inotify nor the limit: see `inotify_init(2)` and
/// `inotify_add_watch(2)`.
fn explain(error: io::Error) -> io::Error {
    let limit = match error.raw_os_error() {
        Some(EMFILE) => "fs.inotify.max_user_instances",
        Some(ENOSPC) => "fs.inotify.max_user_watches",
        _ => return error,
    };
    io::Error::new(
        error.kind(),
        format!("too many are watched already; raise the sysctl {limit}"),
    )
}

/// All signals of an event in a watched folder. A file with several hard links must be watched itself. Links made elsewhere
/// later are not reported.
fn signals(path: PathBuf, mask: EventMask) -> Vec<Signal> {
    let may_get_link = mask.intersects(EventMask::CREATE | EventMask::MOVED_TO);
    let has_links = may_get_link
        && is_manifest(&path)
        && fs::symlink_metadata(&path).is_ok_and(|of| of.is_file() && of.nlink() > 1);
    first_signal(path, mask)
        .into_iter()
        .chain(has_links.then_some(Signal::FoldersMayHaveChanged))
        .collect()
}

/// The first signal of an event in a watched folder.
fn first_signal(path: PathBuf, mask: EventMask) -> Option<Signal> {
    let came = mask.intersects(EventMask::CREATE | EventMask::MOVED_TO);
    let went = mask.intersects(EventMask::DELETE | EventMask::MOVED_FROM);
    if path.file_name().is_some_and(|name| name == CONFIG_MAP_LINK) {
        return came.then_some(Signal::FoldersChanged);
    }
    if is_hidden(&path) {
        return None;
    }
    if mask.contains(EventMask::ISDIR) {
        return match (came, went) {
            (true, _) => Some(Signal::FoldersChanged),
            (_, true) => Some(Signal::FoldersMayHaveChanged),
            _ => mask
                .contains(EventMask::ATTRIB)
                .then_some(Signal::FoldersMayHaveChanged),
        };
    }
    if !is_manifest(&path) {
        // It may be a link to a folder.
        return (came || went).then_some(Signal::FoldersMayHaveChanged);
    }
    if mask.contains(EventMask::CREATE) {
        // A link is complete at once. Its target may have to be watched.
        return match fs::symlink_metadata(&path) {
            Ok(of) if of.is_symlink() => Some(Signal::FoldersChanged),
            Ok(of) if of.nlink() > 1 => Some(Signal::Complete(path)),
            _ => Some(Signal::Created(path)),
        };
    }
    if mask.contains(EventMask::MOVED_TO) {
        let is_link = fs::symlink_metadata(&path).is_ok_and(|of| of.is_symlink());
        return Some(if is_link {
            Signal::FoldersChanged
        } else {
            Signal::Complete(path)
        });
    }
    if mask.contains(EventMask::CLOSE_WRITE) {
        return Some(Signal::Complete(path));
    }
    if mask.contains(EventMask::MODIFY) {
        return Some(Signal::Written(path));
    }
    if went {
        return Some(Signal::Removed(path));
    }
    mask.contains(EventMask::ATTRIB)
        .then_some(Signal::MetadataChanged(path))
}

/// The watches of a rescan. Watches that are not renewed are removed.
pub(super) struct WatchRenewal<'a> {
    watcher: &'a mut Watcher,
    watched: BTreeMap<WatchDescriptor, Watched>,
}

impl WatchRenewal<'_> {
    /// Watches a folder with manifests.
    pub(super) fn folder(&mut self, path: &Path) -> io::Result<()> {
        let mask = WatchMask::ONLYDIR
            | WatchMask::CREATE
            | WatchMask::MODIFY
            | WatchMask::CLOSE_WRITE
            | WatchMask::ATTRIB
            | WatchMask::MOVE
            | WatchMask::DELETE
            | WatchMask::DELETE_SELF
            | WatchMask::MOVE_SELF;
        self.add(path, mask, Watched::Folder(path.to_owned()))
    }

    /// Watches a file itself: the target of a symbolic link, or a file with several hard links. A dangling link is watched
    /// through its folder.
    pub(super) fn target(&mut self, path: &Path) {
        let mask = WatchMask::MODIFY
            | WatchMask::CLOSE_WRITE
            | WatchMask::ATTRIB
            | WatchMask::DELETE_SELF
            | WatchMask::MOVE_SELF;
        let _ = self.add(path, mask, Watched::Target(vec![path.to_owned()]));
    }

    /// Ends the renewal with a watch on the folder that contains `root`. Returns the moved folders, each with its new place;
    /// none if it is no longer watched.
    pub(super) fn finish(mut self, root: &Path) -> Vec<(PathBuf, Option<PathBuf>)> {
        if let Some(parent) = root.parent() {
            let parent = if parent.as_os_str().is_empty() {
                Path::new(".")
            } else {
                parent
            };
            // If it cannot be watched, a replaced root is not noticed; everything else is.
            let mask = WatchMask::ONLYDIR | WatchMask::CREATE | WatchMask::MOVE | WatchMask::DELETE;
            let _ = self.add(parent, mask, Watched::Parent);
        }
        let mut moved = Vec::new();
        for (wd, before) in std::mem::replace(&mut self.watcher.watched, self.watched) {
            let now = self.watcher.watched.get(&wd);
            if let Watched::Folder(from) = &before
                && now != Some(&before)
            {
                let to = match now {
                    Some(Watched::Folder(to)) => Some(to.clone()),
                    _ => None,
                };
                moved.push((from.clone(), to));
            }
            if now.is_none() {
                // It fails for deleted files, whose watch is gone already.
                let _ = self.watcher.watches.remove(wd);
            }
        }
        moved
    }

    fn add(&mut self, path: &Path, mask: WatchMask, watched: Watched) -> io::Result<()> {
        let wd = self.watcher.watches.add(path, mask).map_err(explain)?;
        let watched = match (self.watched.remove(&wd), watched) {
            // Several links to one file.
            (Some(Watched::Target(mut paths)), Watched::Target(more)) => {
                paths.extend(more);
                Watched::Target(paths)
            }
            (_, watched) => watched,
        };
        self.watched.insert(wd, watched);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
