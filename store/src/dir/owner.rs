//! The thread that owns a folder's state: commands and inotify's events in, answers and published changes out.

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
    time::{Instant, sleep_until},
};
use tracing::{debug, warn};

use super::{
    folder::{Folder, Refreshed},
    history::History,
    pending::{Pending, Signal},
    watcher::Watcher,
    write,
};
use crate::{Snapshot, StoreError, Transaction, WatchStream};

/// How soon to look again for a folder that is gone as a whole. Nothing else is done on a timer.
const RETRY: Duration = Duration::from_secs(1);

/// What the owner is asked.
pub(super) enum Command {
    List { prefix: String, reply: oneshot::Sender<Snapshot> },
    Watch { prefix: String, revision: i64, reply: oneshot::Sender<Result<WatchStream, StoreError>> },
    Commit { transaction: Transaction, reply: oneshot::Sender<Result<i64, StoreError>> },
}

/// Starts the thread, and waits until it has read the folder. It ends when the sender is dropped.
pub(super) async fn start(root: &Path) -> Result<mpsc::Sender<Command>, StoreError> {
    let (commands, receiver) = mpsc::channel(16);
    let (reply, started) = oneshot::channel();
    let path = root.display().to_string();
    let failed = move |action: &'static str, source: io::Error| StoreError::File {
        action,
        path: path.clone(),
        source,
    };
    let root = root.to_owned();
    // Reading files blocks, so this is a thread of its own and not a task.
    let run = move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(async move {
                match Owner::open(&root, receiver) {
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
    /// When to look for the folder again, while it is gone.
    retry: Option<Instant>,
}

impl Owner {
    fn open(root: &Path, commands: mpsc::Receiver<Command>) -> Result<Self, (&'static str, io::Error)> {
        if !fs::metadata(root).map_err(|error| ("read", error))?.is_dir() {
            return Err(("read", io::ErrorKind::NotADirectory.into()));
        }
        let mut owner = Self {
            folder: Folder::new(root),
            watcher: Watcher::new(root).map_err(|error| ("watch", error))?,
            pending: Pending::default(),
            history: History::after(0),
            commands,
            retry: None,
        };
        owner.rescan().map_err(|error| ("read", error))?;
        // Nobody saw the folder before, so there is no history of it: the first revision is all that was found.
        owner.folder.publish();
        owner.history = History::after(owner.folder.revision());
        Ok(owner)
    }

    async fn run(mut self) {
        loop {
            let emptied = self.emptied().map(|(_, until)| until);
            let due = self.pending.deadline().into_iter().chain(self.retry).chain(emptied).min();
            let timer = async {
                match due {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.answer(command),
                    None => return,
                },
                signal = self.watcher.next() => {
                    self.note(signal);
                    // Whatever else has happened by now is read together.
                    while let Some(signal) = self.watcher.next().now_or_never() {
                        self.note(signal);
                    }
                }
                () = timer => {}
            }
            self.work();
        }
    }

    fn note(&mut self, signal: io::Result<Option<Signal>>) {
        match signal {
            Ok(Some(signal)) => self.pending.note(signal, Instant::now()),
            Ok(None) => {}
            Err(error) => {
                warn!(%error, "inotify failed; looking at the whole folder");
                self.pending.note(Signal::Lost, Instant::now());
            }
        }
    }

    /// Reads what is due, and publishes what changed.
    fn work(&mut self) {
        let now = Instant::now();
        let work = self.pending.take(now);
        for path in work.overdue {
            let length = fs::metadata(&path).map(|of| of.len());
            match length {
                // Created and still empty: its writer has not come to it yet.
                Ok(0) if self.pending.is_being_written(&path) => continue,
                _ => self.pending.finish(&path),
            }
            self.folder.refresh_or_forget(&path);
        }
        for path in work.complete {
            if matches!(self.folder.refresh(&path), Refreshed::Absent) {
                self.pending.question(path, now);
            }
        }
        let retry_is_due = self.retry.is_some_and(|at| at <= now);
        if work.rescan || retry_is_due {
            self.retry = None;
            if let Err(error) = self.rescan() {
                warn!(folder = %self.folder.root.display(), %error, "cannot read the folder; its last state stays");
                self.retry = Some(now + RETRY);
            }
        }
        let is_due = |(path, until): (&PathBuf, Instant)| (until <= now).then(|| path.clone());
        for path in self.emptied().filter_map(is_due).collect::<Vec<_>>() {
            self.folder.refresh_or_forget(&path);
        }
        self.publish();
    }

    /// Files that are to be believed empty, and when. What else is going to happen to one comes first.
    fn emptied(&self) -> impl Iterator<Item = (&PathBuf, Instant)> {
        self.folder.emptied().filter(|(path, _)| !self.pending.is_untouchable(path))
    }

    fn rescan(&mut self) -> io::Result<()> {
        let Self { folder, watcher, pending, .. } = self;
        let mut renewal = watcher.renew();
        let found = folder.rescan(|path| renewal.folder(path), |path| pending.is_untouchable(path));
        if let Ok(found) = &found {
            for link in &found.links {
                renewal.target(link);
            }
        }
        renewal.finish(&folder.root);
        found.map(drop)
    }

    fn publish(&mut self) {
        for (revision, event) in self.folder.publish() {
            debug!(revision, "the folder changed");
            self.history.push(revision, event);
        }
    }

    fn answer(&mut self, command: Command) {
        // An answer that nobody waits for any more is no error.
        match command {
            Command::List { prefix, reply } => drop(reply.send(self.folder.snapshot(&prefix))),
            Command::Watch { prefix, revision, reply } => {
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
