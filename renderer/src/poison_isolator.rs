//! Leaves out the services that make a renderer fail. Wraps any renderer.
//!
//! If the error names the services, the call is repeated without them. Otherwise this returns to the last good state and applies
//! the failed changes in halves, and halves of those that fail, until single services are found. They are left out and reported,
//! keep their last good state, and are tried again when they change, when an update has them unchanged, and with each resync.

use std::{collections::BTreeMap, sync::Arc};

use contiv_model::{ChangeSet, ContivService, ServiceChange, ServiceId, Snapshot};
use tracing::warn;

use crate::{Description, Rejected, RenderError, Renderer, Report, Verifier, Watch};

/// How often a resync is tried, each time without the services named so far. One attempt names many.
const MAX_ATTEMPTS: usize = 16;
/// If more services fail, the cause lies elsewhere.
const MAX_ISOLATED_SERVICES: usize = 200;
/// A first resync must fail so often in a row before services are isolated. There is no last good state then: what an earlier
/// run left in place is removed until its service is found to be good.
const FAILED_RESYNCS_BEFORE_ISOLATION: u32 = 5;

/// A renderer without the services that make it fail.
#[derive(Debug)]
pub struct PoisonIsolator<R> {
    inner: R,
    /// The state that was applied last, where a search begins; none before the first.
    active: Option<Snapshot>,
    /// The services that are left out.
    refused: BTreeMap<ServiceId, Refusal>,
    /// Failed resyncs in a row without an applied state.
    failures: u32,
}

/// Why a service is left out.
#[derive(Debug)]
struct Refusal {
    reason: String,
    /// The last good state, if any, which is used instead.
    last_good: Option<Arc<ContivService>>,
    /// The renderer named it; otherwise it was found by trying.
    is_named: bool,
}

type Services = BTreeMap<ServiceId, ServiceChange>;

impl<R: Renderer> PoisonIsolator<R> {
    /// Wraps a renderer.
    pub const fn new(inner: R) -> Self {
        Self {
            inner,
            active: None,
            refused: BTreeMap::new(),
            failures: 0,
        }
    }

    /// Resyncs with as much of `desired` as possible; `known` is the state before.
    fn resync_from(
        &mut self,
        known: Option<Snapshot>,
        desired: &Snapshot,
    ) -> Result<Report, RenderError> {
        let (error, known) = match (self.resync_without_named(known.as_ref(), desired), known) {
            (Ok((report, applied)), _) => {
                self.active = Some(applied);
                return Ok(report);
            }
            // If every service needs it, no service is refused.
            (Err(error @ RenderError::MissingModules { .. }), known) => {
                self.active = known;
                return Err(error);
            }
            (Err(error), Some(known)) => (error, known),
            (Err(error), None) => {
                self.failures += 1;
                if self.failures < FAILED_RESYNCS_BEFORE_ISOLATION {
                    return Err(error);
                }
                (
                    error,
                    Snapshot {
                        services: BTreeMap::new(),
                        ..desired.clone()
                    },
                )
            }
        };
        let changes = ChangeSet::between(&known, &self.without_refused(desired));
        self.search(known, &changes, error)
    }

    /// Resyncs without the services that the renderer names. Returns the applied state, too.
    fn resync_without_named(
        &mut self,
        known: Option<&Snapshot>,
        desired: &Snapshot,
    ) -> Result<(Report, Snapshot), RenderError> {
        let mut attempts = 1;
        loop {
            let snapshot = self.without_refused(desired);
            match self.inner.resync(&snapshot) {
                Err(RenderError::Refused { services })
                    if attempts < MAX_ATTEMPTS && self.leave_out(&services, &snapshot, known) => {}
                result => return result.map(|report| (report, snapshot)),
            }
            attempts += 1;
        }
    }

    /// Replaces services of `snapshot` by their last good state. False if it contains none of them.
    fn leave_out(
        &mut self,
        services: &BTreeMap<ServiceId, String>,
        snapshot: &Snapshot,
        known: Option<&Snapshot>,
    ) -> bool {
        let mut found = false;
        for (id, reason) in services {
            let Some(service) = snapshot.services.get(id) else {
                continue;
            };
            // Refused again: that was its last good state, so it has none.
            let known = known.filter(|_| !self.refused.contains_key(id));
            let last_good = known
                .and_then(|known| known.services.get(id))
                .filter(|known| *known != service);
            let refusal = Refusal {
                reason: reason.clone(),
                last_good: last_good.cloned(),
                is_named: true,
            };
            self.refused.insert(id.clone(), refusal);
            found = true;
        }
        found
    }

    /// Applies `changes` without those of `services`, which the renderer named.
    fn update_without(
        &mut self,
        mut services: BTreeMap<ServiceId, String>,
        mut active: Snapshot,
        changes: &ChangeSet,
    ) -> Result<Report, RenderError> {
        services.retain(|id, _| changes.services.contains_key(id));
        let mut rest = changes.clone();
        rest.services.retain(|id, _| !services.contains_key(id));
        if let Ok(report) = self.inner.update(&rest) {
            for (id, reason) in services {
                let last_good = active.services.get(&id).cloned();
                self.refused.insert(
                    id,
                    Refusal {
                        reason,
                        last_good,
                        is_named: true,
                    },
                );
            }
            active.apply(&rest);
            self.active = Some(active);
            return Ok(report);
        }
        // The state of the renderer may be unknown. A resync may even succeed with all: foreign changes may be the cause.
        let mut desired = active.clone();
        desired.apply(changes);
        self.resync_from(Some(active), &desired)
    }

    /// Applies as much of `changes` as possible, after `error`.
    ///
    /// # Errors
    /// When the failure is not caused by services. The next search then begins with the last applied state.
    fn search(
        &mut self,
        mut active: Snapshot,
        changes: &ChangeSet,
        error: RenderError,
    ) -> Result<Report, RenderError> {
        let result = self.apply_in_parts(&mut active, changes, error);
        self.active = Some(active);
        result
    }

    fn apply_in_parts(
        &mut self,
        active: &mut Snapshot,
        changes: &ChangeSet,
        error: RenderError,
    ) -> Result<Report, RenderError> {
        let mut report = self.inner.resync(active)?;
        let other_changes = ChangeSet {
            services: Services::new(),
            ..changes.clone()
        };
        if !other_changes.is_empty() {
            add(&mut report, self.inner.update(&other_changes)?);
            active.apply(&other_changes);
        }
        let mut failures = 0;
        let mut parts = vec![(changes.services.clone(), false)];
        while let Some((services, is_second_try)) = parts.pop() {
            let part = ChangeSet {
                services,
                ..ChangeSet::default()
            };
            let result = if is_second_try {
                // A resync can do what an update cannot, such as enlarge a full set.
                let mut desired = active.clone();
                desired.apply(&part);
                self.inner.resync(&desired)
            } else {
                self.inner.update(&part)
            };
            let reason = match result {
                Ok(done) => {
                    add(&mut report, done);
                    active.apply(&part);
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
            add(&mut report, self.inner.resync(active)?);
            let mut services = part.services;
            match services.len() {
                // It may have failed by chance.
                1 if !is_second_try => parts.push((services, true)),
                1 => self.refuse(services, active, &reason),
                count => {
                    let middle = services.keys().nth(count / 2).cloned();
                    let second = middle
                        .map(|middle| services.split_off(&middle))
                        .unwrap_or_default();
                    parts.extend([(second, false), (services, false)]);
                }
            }
        }
        // If an address moved between services, the halves may have been applied in the wrong order.
        add(&mut report, self.inner.resync(active)?);
        Ok(report)
    }

    /// The changes, extended by the current state of services that were left out and are tried again now.
    fn try_again(&mut self, changes: &ChangeSet, active: &Snapshot) -> ChangeSet {
        let mut changes = changes.clone();
        let tried_again = changes
            .services
            .iter_mut()
            .filter(|(id, _)| self.refused.remove(*id).is_some());
        for (id, change) in tried_again {
            change.old = active.services.get(id).cloned();
        }
        changes
    }

    fn refuse(&mut self, services: Services, active: &Snapshot, reason: &RenderError) {
        for service in services.into_keys() {
            warn!(renderer = self.inner.name(), %service, %reason, "a service is left out: all others can be applied");
            let last_good = active.services.get(&service).cloned();
            let refusal = Refusal {
                reason: format!("found by trying: {reason}"),
                last_good,
                is_named: false,
            };
            self.refused.insert(service, refusal);
        }
    }

    /// Adds the services that are left out to the report.
    fn with_refused(&self, mut report: Report) -> Report {
        report
            .rejected
            .extend(self.refused.iter().map(|(id, refusal)| Rejected {
                service: id.clone(),
                reason: refusal.reason.clone(),
                active_state: if refusal.last_good.is_some() {
                    "last good"
                } else {
                    "nothing"
                },
            }));
        report
    }

    /// The desired state, but with the current state of services that are left out.
    fn without_refused(&self, desired: &Snapshot) -> Snapshot {
        let mut snapshot = desired.clone();
        for (id, refusal) in &self.refused {
            match &refusal.last_good {
                Some(service) => snapshot.services.insert(id.clone(), Arc::clone(service)),
                None => snapshot.services.remove(id),
            };
        }
        snapshot
    }
}

/// Sums up both reports. The services left out are those of the later one.
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
        let known = self.active.take();
        let report = self.resync_from(known, snapshot)?;
        self.failures = 0;
        Ok(self.with_refused(report))
    }

    fn update(&mut self, changes: &ChangeSet) -> Result<Report, RenderError> {
        let Some(mut active) = self.active.take() else {
            return self.inner.update(changes);
        };
        let adapted = (!self.refused.is_empty()).then(|| self.try_again(changes, &active));
        let changes = adapted.as_ref().unwrap_or(changes);
        let report = match self.inner.update(changes) {
            Ok(report) => {
                active.apply(changes);
                self.active = Some(active);
                report
            }
            Err(error @ RenderError::MissingModules { .. }) => {
                self.active = Some(active);
                return Err(error);
            }
            Err(RenderError::Refused { services }) => {
                self.update_without(services, active, changes)?
            }
            Err(error) => self.search(active, changes, error)?,
        };
        Ok(self.with_refused(report))
    }

    fn watch(&mut self) -> Result<Option<Box<dyn Watch>>, RenderError> {
        self.inner.watch()
    }

    fn heal(&mut self, snapshot: &Snapshot) -> Result<Report, RenderError> {
        // A foreign change, which is reverted now, may have been the reason why a service was refused.
        if self.refused.values().any(|refusal| refusal.is_named) {
            return self.resync(snapshot);
        }
        let result = if self.refused.is_empty() {
            self.inner.heal(snapshot)
        } else {
            self.inner.heal(&self.without_refused(snapshot))
        };
        match result {
            Err(RenderError::Refused { .. }) => self.resync(snapshot),
            result => result.map(|report| self.with_refused(report)),
        }
    }

    fn verifier(&self) -> Option<Box<dyn Verifier>> {
        self.inner.verifier()
    }

    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn cleanup(&mut self) -> Result<Report, RenderError> {
        self.active = None;
        self.inner.cleanup()
    }
}
