//! What the loop does when others have changed the dataplane of a renderer.

use std::sync::Arc;

use tracing::{debug, warn};

use super::{EventLoop, renderers::Notice};

impl EventLoop {
    /// Has undone what others did to the dataplane of one renderer.
    pub(super) fn take_notice(&mut self, Notice { renderer, heard }: Notice) {
        let what = match heard {
            Ok(change) => change.to_string(),
            Err(error) => format!("somebody may have changed it unnoticed: {error}"),
        };
        if !self.renderers.notice(&renderer) {
            debug!(
                renderer = &*renderer,
                what, "others changed the dataplane again; a repair is due already"
            );
            return;
        }
        warn!(renderer = &*renderer, what, "others changed the dataplane; undoing it");
        let event = self.record(
            "foreign-change",
            format!("dataplane of renderer {renderer}: {what}"),
            None,
            vec![Arc::clone(&renderer)],
        );
        self.renderers.need_repair(&renderer, event);
        self.dispatch();
    }
}
