//! The status line of `systemctl status`.

use contiv_node::{RendererView, Status};

use crate::controllers::Leadership;

/// The state of the agent: the most urgent of those that apply.
pub(super) fn agent(status: &Status, renderers: &[RendererView]) -> String {
    let waiting = || {
        let names = renderers
            .iter()
            .filter(|renderer| !renderer.ready)
            .map(|renderer| &*renderer.name);
        names.collect::<Vec<_>>().join(", ")
    };
    if let Some(renderer) = renderers.iter().find(|renderer| renderer.failures > 0) {
        let error = renderer.last_error.as_ref().map_or("", |last| &last.error);
        return format!("renderer {} fails: {}", renderer.name, one_line(error));
    }
    if let Some(down) = &status.store_down {
        let meanwhile = if status.ready {
            "; its last known content is in use"
        } else {
            ""
        };
        return format!(
            "the store cannot be watched: {}{meanwhile}",
            one_line(&down.reason)
        );
    }
    if status.held_deletions.is_some() {
        return "deletions are held, as they are too many at once; see /status".to_owned();
    }
    if !status.synced {
        return format!("reading the store {}", status.store);
    }
    if !status.ready {
        return format!("applying the first snapshot: {}", waiting());
    }
    let from_mirror = if status.from_mirror {
        ", from the mirror"
    } else {
        ""
    };
    let quarantined = match status.quarantined {
        0 => String::new(),
        count => format!(", {count} in quarantine"),
    };
    format!("ready{from_mirror}{quarantined}")
}

/// The state of this instance of the controllers: the most urgent of those that apply. `waiting` are the controllers that have
/// not synced.
pub(super) fn controllers(leadership: &Leadership, waiting: &[&str]) -> String {
    if let Some(reason) = &leadership.store_down {
        return format!("the store cannot be watched: {}", one_line(reason));
    }
    if !leadership.is_known {
        return "reading the store".to_owned();
    }
    if leadership.is_leader && waiting.is_empty() {
        return "active".to_owned();
    }
    if leadership.is_leader {
        return format!("active; not everything is read yet: {}", waiting.join(", "));
    }
    match &leadership.holder {
        Some(holder) => format!("standing by; {holder} is active"),
        None => "no instance is active yet".to_owned(),
    }
}

/// Joins the lines of a text, since a status is one line.
pub(super) fn one_line(text: &str) -> String {
    text.replace('\n', "; ")
}
