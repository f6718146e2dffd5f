//! The renderer that changes nothing: it keeps what would be programmed, as text.

mod render;

use contiv_model::{ChangeSet, Snapshot};

use crate::{Description, RenderError, Renderer, Report};

pub use render::{COLUMNS, json, nft, rows};

/// Remembers the desired state and shows it. Useful to try a configuration, and as the simplest example of a renderer.
#[derive(Debug, Default)]
pub struct DryRun {
    snapshot: Option<Snapshot>,
}

impl DryRun {
    /// A renderer without any state.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Renderer for DryRun {
    fn name(&self) -> &'static str {
        "dry-run"
    }

    fn resync(&mut self, snapshot: &Snapshot) -> Result<Report, RenderError> {
        let before = self
            .snapshot
            .replace(snapshot.clone())
            .map_or(0, |snapshot| snapshot.services.len());
        Ok(Report {
            added: snapshot.services.len(),
            removed: before,
            ..Report::default()
        })
    }

    fn update(&mut self, changes: &ChangeSet) -> Result<Report, RenderError> {
        let snapshot = self.snapshot.as_mut().ok_or(RenderError::Unsynced)?;
        snapshot.apply(changes);
        let count = |present: fn(&contiv_model::ServiceChange) -> bool| {
            changes
                .services
                .values()
                .filter(|change| present(change))
                .count()
        };
        Ok(Report {
            added: count(|change| change.new.is_some()),
            removed: count(|change| change.old.is_some()),
            ..Report::default()
        })
    }

    fn describe(&self) -> Description {
        let Some(snapshot) = &self.snapshot else {
            return Description::default();
        };
        let services = snapshot.services.len();
        Description {
            services,
            sizes: vec![("services".to_owned(), services)],
            text: nft(snapshot),
        }
    }

    fn cleanup(&mut self) -> Result<Report, RenderError> {
        self.snapshot = None;
        Ok(Report::default())
    }
}

#[cfg(test)]
mod tests;
