//! Finds the services that make a renderer fail if the error does not name them. Wraps any renderer.
//!
//! A renderer that knows which service is to blame leaves that one out itself. Otherwise this returns to the last good state
//! and applies the failed changes in halves, and halves of those that fail, until single services are found. They are left out
//! and reported, keep their last good state, and are tried again when they change and with each resync.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use contiv_model::{ChangeSet, ServiceChange, ServiceId, Snapshot};
use tracing::warn;

use crate::{Description, Rejected, RenderError, Renderer, Report, Verifier, Watch};

/// If more services fail, the cause lies elsewhere.
const MAX_ISOLATED_SERVICES: usize = 200;
/// A first resync must fail so often in a row before services are isolated. There is no last good state then: what an earlier
/// run left in place is removed until its service is found to be good.
const FAILED_RESYNCS_BEFORE_ISOLATION: u32 = 5;

/// A renderer without the services that make it fail.
#[derive(Debug)]
pub struct PoisonIsolator<R> {
    inner: R,
    /// The state that was applied last, where a search begins; none if there is none.
    in_force: Option<Snapshot>,
    /// The reason why each service is left out.
    refused: BTreeMap<ServiceId, String>,
    /// Failed resyncs in a row without an applied state.
    failures: u32,
}

type Services = BTreeMap<ServiceId, ServiceChange>;

impl<R: Renderer> PoisonIsolator<R> {
    /// Wraps a renderer.
    pub const fn new(inner: R) -> Self {
        Self { inner, in_force: None, refused: BTreeMap::new(), failures: 0 }
    }

    /// Applies as much of `changes` as possible, after `error`.
    ///
    /// # Errors
    /// When the failure is not caused by services. The next search then begins with the last applied state.
    fn search(
        &mut self,
        mut in_force: Snapshot,
        changes: &ChangeSet,
        error: RenderError,
    ) -> Result<Report, RenderError> {
        let result = self.apply_in_parts(&mut in_force, changes, error);
        self.in_force = Some(in_force);
        result
    }

    fn apply_in_parts(
        &mut self,
        in_force: &mut Snapshot,
        changes: &ChangeSet,
        error: RenderError,
    ) -> Result<Report, RenderError> {
        let mut report = self.inner.resync(in_force)?;
        let besides = ChangeSet { services: Services::new(), ..changes.clone() };
        if !besides.is_empty() {
            add(&mut report, self.inner.update(&besides)?);
            in_force.apply(&besides);
        }
        let mut failures = 0;
        let mut parts = vec![(changes.services.clone(), false)];
        while let Some((services, is_second_try)) = parts.pop() {
            let part = ChangeSet { services, ..ChangeSet::default() };
            let reason = match self.inner.update(&part) {
                Ok(done) => {
                    add(&mut report, done);
                    in_force.apply(&part);
                    continue;
                }
                Err(error @ RenderError::MissingModules { .. }) => return Err(error),
                Err(reason) => reason,
            };
            failures += 1;
            if failures > MAX_ISOLATED_SERVICES {
                return Err(error);
            }
            // If this fails, services are not the cause.
            add(&mut report, self.inner.resync(in_force)?);
            let mut services = part.services;
            match services.len() {
                // It may have failed by chance.
                1 if !is_second_try => parts.push((services, true)),
                1 => self.refuse(services, &reason),
                count => {
                    let middle = services.keys().nth(count / 2).cloned();
                    let second = middle.map(|middle| services.split_off(&middle)).unwrap_or_default();
                    parts.extend([(second, false), (services, false)]);
                }
            }
        }
        // If an address moved between services, the halves may have been applied in the wrong order.
        add(&mut report, self.inner.resync(in_force)?);
        Ok(report)
    }

    /// The changes, extended by the current state of services that were left out and are tried again now.
    fn try_again(&mut self, changes: &ChangeSet, in_force: &Snapshot) -> ChangeSet {
        let mut changes = changes.clone();
        let tried_again = changes.services.iter_mut().filter(|(id, _)| self.refused.remove(*id).is_some());
        for (id, change) in tried_again {
            change.old = in_force.services.get(id).cloned();
        }
        changes
    }

    fn refuse(&mut self, services: Services, reason: &RenderError) {
        for service in services.into_keys() {
            warn!(renderer = self.inner.name(), %service, %reason, "a service is left out: all others can be applied");
            self.refused.insert(service, format!("found by trying: {reason}"));
        }
    }

    /// Adds the services that are left out to the report.
    fn with_refused(&self, mut report: Report) -> Report {
        let is_known = |id| self.in_force.as_ref().is_some_and(|known| known.services.contains_key(id));
        report.rejected.extend(self.refused.iter().map(|(id, reason)| Rejected {
            service: id.clone(),
            reason: reason.clone(),
            in_force: if is_known(id) { "last good" } else { "nothing" },
        }));
        report
    }

    /// The desired state, but with the current state of services that are left out.
    fn without_refused(&self, wanted: &Snapshot) -> Snapshot {
        let mut snapshot = wanted.clone();
        for id in self.refused.keys() {
            match self.in_force.as_ref().and_then(|known| known.services.get(id)) {
                Some(service) => snapshot.services.insert(id.clone(), Arc::clone(service)),
                None => snapshot.services.remove(id),
            };
        }
        snapshot
    }
}

/// Sums up both reports. The later one says what is left out.
fn add(report: &mut Report, later: Report) {
    report.added += later.added;
    report.removed += later.removed;
    report.transactions += later.transactions;
    report.bytes += later.bytes;
    report.sent = report.sent.or(later.sent);
    report.notes = later.notes;
    report.rejected = later.rejected;
}

impl<R: Renderer> Renderer for PoisonIsolator<R> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn prepare(&mut self) {
        self.inner.prepare();
    }

    fn resync(&mut self, snapshot: &Snapshot) -> Result<Report, RenderError> {
        // All are tried again.
        self.refused.clear();
        let result = self.inner.resync(snapshot);
        let known = self.in_force.take();
        let report = match (result, known) {
            (Ok(report), _) => {
                self.in_force = Some(snapshot.clone());
                report
            }
            // If every service needs it, no service is to blame.
            (Err(error @ RenderError::MissingModules { .. }), known) => {
                self.in_force = known;
                return Err(error);
            }
            (Err(error), Some(known)) => {
                self.search(known.clone(), &ChangeSet::between(&known, snapshot), error)?
            }
            (Err(error), None) => {
                self.failures += 1;
                if self.failures < FAILED_RESYNCS_BEFORE_ISOLATION {
                    return Err(error);
                }
                let nothing = Snapshot { services: BTreeMap::new(), ..snapshot.clone() };
                self.search(nothing.clone(), &ChangeSet::between(&nothing, snapshot), error)?
            }
        };
        self.failures = 0;
        Ok(self.with_refused(report))
    }

    fn update(&mut self, changes: &ChangeSet) -> Result<Report, RenderError> {
        let Some(mut in_force) = self.in_force.take() else { return self.inner.update(changes) };
        let adapted = (!self.refused.is_empty()).then(|| self.try_again(changes, &in_force));
        let changes = adapted.as_ref().unwrap_or(changes);
        let report = match self.inner.update(changes) {
            Ok(report) => {
                in_force.apply(changes);
                self.in_force = Some(in_force);
                report
            }
            Err(error @ RenderError::MissingModules { .. }) => {
                self.in_force = Some(in_force);
                return Err(error);
            }
            Err(error) => self.search(in_force, changes, error)?,
        };
        Ok(self.with_refused(report))
    }

    fn watch(&mut self) -> Result<Option<Box<dyn Watch>>, RenderError> {
        self.inner.watch()
    }

    fn heal(&mut self, snapshot: &Snapshot) -> Result<Report, RenderError> {
        let report = if self.refused.is_empty() {
            self.inner.heal(snapshot)?
        } else {
            self.inner.heal(&self.without_refused(snapshot))?
        };
        Ok(self.with_refused(report))
    }

    fn verifier(&self) -> Option<Box<dyn Verifier>> {
        self.inner.verifier()
    }

    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn cleanup(&mut self) -> Result<Report, RenderError> {
        self.in_force = None;
        self.inner.cleanup()
    }
}
