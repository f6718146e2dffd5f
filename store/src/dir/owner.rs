//! The thread that owns a folder's state: receives commands and inotify's events, sends answers and published changes.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use futures::FutureExt;
use tokio::{
    runtime,
    sync::{mpsc, oneshot},
    task::yield_now,
    time::{Instant, sleep_until},
};
use tracing::{debug, warn};

use super::{
    DirOptions, LoadSaved,
    folder::{Folder, RereadResult},
    history::History,
    pending::{Pending, Signal},
    watcher::Watcher,
    write,
};
use crate::{
    Snapshot, StoreError, Transaction, WatchStream,
    manifest::walk::{Walk, walk},
};

/// How often a missing folder is looked for. Nothing else is done on a timer.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A request to the task that owns the folder.
pub(super) enum Command {
    List {
        prefix: String,
        reply: oneshot::Sender<Snapshot>,
    },
    Watch {
        prefix: String,
        revision: i64,
        reply: oneshot::Sender<Result<WatchStream, StoreError>>,
    },
    Commit {
        transaction: Transaction,
        reply: oneshot::Sender<Result<i64, StoreError>>,
    },
}

/// Starts the thread, and waits until it has read the folder. It ends when the sender is dropped.
pub(super) async fn start(
    root: &Path,
    options: DirOptions,
) -> Result<mpsc::Sender<Command>, StoreError> {
    let (commands, receiver) = mpsc::channel(16);
    let (reply, started) = oneshot::channel();
    let path = root.display().to_string();
    let failed = move |action: &'static str, source: io::Error| StoreError::File {
        action,
        path: path.clone(),
        source,
    };
    let root = root.to_owned();
    // Reading files blocks, so this is a thread and not a task.
    let run = move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(async move {
                match Owner::open(&root, options, receiver).await {
                    Ok(owner) => {
                        let _ = reply.send(Ok(()));
                        owner.run().await;
                    }
                    Err(error) => drop(reply.send(Err(error))),
                }
            }),
            Err(error) => drop(reply.send(Err(("start a thread for", error)))),
        }
    };
    thread::Builder::new()
        .name("contiv-dir".to_owned())
        .spawn(run)
        .map_err(|error| failed("start a thread for", error))?;
    match started.await {
        Ok(Ok(())) => Ok(commands),
        Ok(Err((action, error))) => Err(failed(action, error)),
        Err(_) => Err(failed("start a thread for", io::ErrorKind::Other.into())),
    }
}

struct Owner {
    folder: Folder,
    watcher: Watcher,
    pending: Pending,
    history: History,
    commands: mpsc::Receiver<Command>,
    /// When to look for the missing folder again.
    retry: Option<Instant>,
}

impl Owner {
    async fn open(
        root: &Path,
        DirOptions { links, recall }: DirOptions,
        commands: mpsc::Receiver<Command>,
    ) -> Result<Self, (&'static str, io::Error)> {
        if !fs::metadata(root)
            .map_err(|error| ("read", error))?
            .is_dir()
        {
            return Err(("read", io::ErrorKind::NotADirectory.into()));
        }
        let mut owner = Self {
            folder: Folder::new(root, links),
            watcher: Watcher::new(root).map_err(|error| ("watch", error))?,
            pending: Pending::default(),
            history: History::after(0),
            commands,
            retry: None,
        };
        let found = owner.rescan().await.map_err(|error| ("read", error))?;
        owner.folder.publish();
        if owner.folder.may_be_incomplete() {
            owner.recall(&found, recall);
        }
        // There is no earlier history: the first revision contains everything found.
        owner.folder.publish();
        owner.folder.compact();
        owner.history = History::after(owner.folder.revision());
        Ok(owner)
    }

    /// Recalls saved entries that unreadable files may contain.
    fn recall(&mut self, found: &Walk, recall: Option<LoadSaved>) {
        let Some(recall) = recall else { return };
        let objects = self.folder.recall(found, recall());
        if objects > 0 {
            warn!(
                folder = %self.folder.root.display(),
                objects,
                "some manifests cannot be read; saved objects that may be in them stay in use"
            );
        }
    }

    async fn run(mut self) {
        loop {
            let emptied = self.emptied().map(|(_, until)| until);
            let due = self
                .pending
                .deadline(Instant::now())
                .into_iter()
                .chain(self.retry)
                .chain(emptied)
                .min();
            let timer = async {
                match due {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.answer(command).await,
                    None => return,
                },
                signal = self.watcher.next() => {
                    note(&mut self.pending, signal);
                    // Further events up to now are handled together.
                    note_all(&mut self.watcher, &mut self.pending).await;
                }
                () = timer => {}
            }
            self.work(false).await;
        }
    }

    /// Reads what is due, and the whole folder if `wants_rescan`, and publishes the changes.
    async fn work(&mut self, wants_rescan: bool) {
        let now = Instant::now();
        let work = self.pending.take(now);
        for path in &work.written {
            self.folder.check_size(path);
        }
        for path in work.overdue {
            let length = fs::metadata(&path).map(|of| of.len());
            match length {
                // Created and still empty: its writer has not written yet.
                Ok(0) if self.pending.is_being_written(&path) => continue,
                _ => self.pending.finish(&path),
            }
            self.folder.refresh_or_forget(&path);
        }
        for path in work.complete {
            if matches!(self.folder.refresh(&path), RereadResult::Absent) {
                self.pending.note_missing(path, now);
            }
        }
        let retry_is_due = self.retry.is_some_and(|at| at <= now);
        if work.rescan || retry_is_due || wants_rescan {
            self.rescan_or_retry().await;
        }
        let is_due = |(path, until): (&PathBuf, Instant)| (until <= now).then(|| path.clone());
        for path in self.emptied().filter_map(is_due).collect::<Vec<_>>() {
            if self.pending.is_being_written(&path) {
                self.folder.forget_emptied(&path);
                self.pending.finish(&path);
            } else {
                self.folder.refresh_or_forget(&path);
            }
        }
        self.publish();
    }

    async fn rescan_or_retry(&mut self) {
        self.retry = None;
        if let Err(error) = self.rescan().await {
            warn!(folder = %self.folder.root.display(), %error, "cannot read the folder; its last state stays");
            self.retry = Some(Instant::now() + RETRY_INTERVAL);
        }
    }

    /// Empty files whose objects will be removed, and when. Other events of a file come first.
    fn emptied(&self) -> impl Iterator<Item = (&PathBuf, Instant)> {
        let emptied = self
            .folder
            .emptied(|path| self.pending.is_being_written(path));
        emptied.filter(|(path, _)| !self.pending.may_be_removed(path))
    }

    /// Reads the whole folder. Everything is watched before it is read, so that no change is missed.
    async fn rescan(&mut self) -> io::Result<Walk> {
        let Self {
            folder,
            watcher,
            pending,
            ..
        } = self;
        let mut renewal = watcher.renew();
        let found = walk(&folder.root, folder.links, |path| renewal.folder(path));
        for link in found.iter().flat_map(|found| &found.links) {
            renewal.target(link);
        }
        for (from, to) in renewal.finish(&folder.root) {
            pending.move_folder(&from, to.as_deref());
        }
        match &found {
            Ok(found) => {
                let must_not_be_read = async |path: &Path| {
                    note_all(watcher, pending).await;
                    pending.must_not_be_read(path)
                };
                folder.apply(found, must_not_be_read).await;
            }
            Err(error) => folder.apply_failure(error),
        }
        found
    }

    /// Reads the whole folder on request: inotify does not report everything.
    async fn rescan_now(&mut self) {
        // A file that is being replaced at this moment must not be missed.
        note_all(&mut self.watcher, &mut self.pending).await;
        self.work(true).await;
    }

    fn publish(&mut self) {
        for (revision, event) in self.folder.publish() {
            debug!(revision, "the folder changed");
            self.history.push(revision, event);
        }
    }

    async fn answer(&mut self, command: Command) {
        // It is no error if the requester is gone.
        match command {
            Command::List { prefix, reply } => {
                self.rescan_now().await;
                drop(reply.send(self.folder.snapshot(&prefix)));
            }
            Command::Watch {
                prefix,
                revision,
                reply,
            } => {
                drop(reply.send(self.history.watch(prefix, revision, self.folder.revision())));
            }
            Command::Commit { transaction, reply } => {
                let committed = write::commit(&self.folder, &transaction);
                let answer = committed.map(|paths| self.read_back(&paths));
                drop(reply.send(answer));
            }
        }
    }

    /// Reads what was just written, so that the writer sees it in the next list.
    fn read_back(&mut self, paths: &[PathBuf]) -> i64 {
        for path in paths {
            self.folder.refresh_or_forget(path);
        }
        self.publish();
        self.folder.revision()
    }
}

/// Notes all events up to now.
async fn note_all(watcher: &mut Watcher, pending: &mut Pending) {
    // The runtime polls for events only when no task runs.
    yield_now().await;
    while let Some(signal) = watcher.next().now_or_never() {
        note(pending, signal);
    }
}

fn note(pending: &mut Pending, signal: io::Result<Option<Signal>>) {
    match signal {
        Ok(Some(signal)) => pending.note(signal, Instant::now()),
        Ok(None) => {}
        Err(error) => {
            warn!(%error, "inotify failed; reading the whole folder");
            pending.note(Signal::EventsLost, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests;
