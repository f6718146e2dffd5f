//! Hears what others do to the dataplane of a renderer, on a thread of its own, and tells the loop.

use std::{
    sync::{Arc, Weak},
    thread,
};

use contiv_renderer::{ForeignChange, Renderer, Watch};
use tokio::sync::mpsc;
use tracing::warn;

/// Others have changed the dataplane of a renderer, or may have.
#[derive(Debug)]
pub(in crate::event_loop) struct Notice {
    pub(in crate::event_loop) renderer: Arc<str>,
    /// What they did; or why nothing is heard any more.
    pub(in crate::event_loop) heard: Result<ForeignChange, String>,
}

/// The watch of one renderer, begun again whenever it has ended.
#[derive(Debug)]
pub(super) struct Watcher {
    renderer: Arc<str>,
    notices: mpsc::Sender<Notice>,
    /// Alive as long as the watch is.
    watch: Weak<()>,
    /// Why it could not begin at the last try.
    failure: Option<String>,
}

impl Watcher {
    pub(super) const fn new(renderer: Arc<str>, notices: mpsc::Sender<Notice>) -> Self {
        Self { renderer, notices, watch: Weak::new(), failure: None }
    }

    /// Begins to watch, unless that is being done. If it fails, changes of others are not noticed until the next try.
    pub(super) fn watch(&mut self, renderer: &mut dyn Renderer) {
        if self.is_watching() {
            return;
        }
        let started = match renderer.watch() {
            Ok(None) => return,
            Ok(Some(watch)) => self.start(watch).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let failure = started.err();
        if let Some(error) = &failure
            && self.failure != failure
        {
            warn!(renderer = &*self.renderer, error, "what others do to the dataplane will not be noticed");
        }
        self.failure = failure;
    }

    /// Whether it is heard what others do.
    pub(super) fn is_watching(&self) -> bool {
        self.watch.strong_count() > 0
    }

    /// The renderer is gone, and its watch ends by itself.
    pub(super) fn forget(&mut self) {
        self.watch = Weak::new();
    }

    fn start(&mut self, watch: Box<dyn Watch>) -> std::io::Result<()> {
        let life = Arc::new(());
        let alive = Arc::downgrade(&life);
        let (renderer, notices) = (Arc::clone(&self.renderer), self.notices.clone());
        let thread = thread::Builder::new().name(format!("watch-{renderer}"));
        thread.spawn(move || listen(&renderer, watch, &notices, life))?;
        self.watch = alive;
        Ok(())
    }
}

fn listen(renderer: &Arc<str>, mut watch: Box<dyn Watch>, notices: &mpsc::Sender<Notice>, life: Arc<()>) {
    loop {
        let heard = match watch.next() {
            Ok(None) => return,
            Ok(Some(change)) => Ok(change),
            Err(error) => Err(error.to_string()),
        };
        let notice = Notice { renderer: Arc::clone(renderer), heard };
        if notice.heard.is_err() {
            // Whoever learns of the end must be able to begin anew.
            drop(life);
            let _ = notices.blocking_send(notice);
            return;
        }
        if notices.blocking_send(notice).is_err() {
            return;
        }
    }
}
