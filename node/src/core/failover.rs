//! Failover: backends of a service that the store says are ready, but that refuse or do not answer this node's clients, leave the
//! choice for new connections until a probe is answered. Pure.
//!
//! A backend that refused or is silent is a suspect, whatever service it belongs to. [`decide`] derives from the suspects which
//! backends of a service are out, so that no order of reports matters, and what holds is undone as soon as its reason is gone. The
//! processor makes backends that are out [failing](contiv_model::BackendState::Failing).

mod decision;
mod status;
mod suspect;
mod watches;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Instant,
};

use contiv_model::{ContivService, Event, FailoverMode, ServiceId};

use crate::message::{FailureCause, Metric, Now, Output, Watch};
use decision::{decide, others_that_work, ready_backends};
use status::MAX_SHOWN;
pub use status::{FailingBackend, FailoverStatus};
use suspect::{Return, SuspectedBackends};
use watches::{is_watched, union, watches_of};

/// The state of failover.
#[derive(Debug, Default)]
pub(super) struct Failover {
    services: BTreeMap<ServiceId, WatchedService>,
    /// The watched services of each backend; no empty sets.
    services_of: BTreeMap<SocketAddr, BTreeSet<ServiceId>>,
    /// The backends that are watched, as they were sent.
    watched: BTreeMap<SocketAddr, Watch>,
    suspects: SuspectedBackends,
    /// The backends that were silent by the last report.
    silent: BTreeSet<SocketAddr>,
    /// The services of which too many backends are silent.
    cut_off: BTreeSet<ServiceId>,
    /// What the kernel lacks to count attempts and answers.
    error: Option<String>,
}

/// A service whose backends are watched.
#[derive(Debug)]
struct WatchedService {
    service: Arc<ContivService>,
    watches: BTreeMap<SocketAddr, Watch>,
    /// The backends that are out, or with [`FailoverMode::Observe`] would be.
    out: BTreeSet<SocketAddr>,
    /// The backends that are failing for the processor.
    failing: BTreeSet<SocketAddr>,
}

/// What follows from an input.
#[derive(Debug, Default)]
pub(super) struct Update {
    /// For the processor.
    pub(super) failing: Vec<Event>,
    /// Descriptions of what these change.
    pub(super) changes: Vec<String>,
    /// What is recorded besides.
    pub(super) notes: Vec<Note>,
    pub(super) outputs: Vec<Output>,
}

/// What is recorded without a change of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) description: String,
    /// Whether an operator should know.
    pub(super) is_warning: bool,
}

/// Why backends are no longer suspects.
type Returns = BTreeMap<SocketAddr, Return>;

/// Inputs.
impl Failover {
    /// True if a change to this service matters.
    pub(super) fn is_concerned(&self, id: &ServiceId, new: Option<&ContivService>) -> bool {
        self.services.contains_key(id) || new.is_some_and(is_watched)
    }

    /// Takes over services that have changed; none for those that were deleted.
    pub(super) fn update_services(
        &mut self,
        services: impl IntoIterator<Item = (ServiceId, Option<Arc<ContivService>>)>,
    ) -> Update {
        let mut update = Update::default();
        let (mut affected, mut touched) = (BTreeSet::new(), BTreeSet::new());
        let mut returns = Returns::new();
        for (id, new) in services {
            let new = new.filter(|service| is_watched(service));
            let old = self.services.remove(&id);
            touched.extend(old.iter().flat_map(|old| old.watches.keys()).copied());
            if let (Some(old), Some(new)) = (&old, &new)
                && !self.suspects.is_empty()
            {
                // The store says something new of these.
                let (before, after) = (ready_backends(&old.service), ready_backends(new));
                for backend in before.symmetric_difference(&after) {
                    if self.suspects.forget(*backend) {
                        returns.insert(*backend, Return::News);
                        affected.extend(self.services_of(backend).cloned());
                    }
                }
            }
            for backend in old.iter().flat_map(|old| old.watches.keys()) {
                if let Some(services) = self.services_of.get_mut(backend) {
                    services.remove(&id);
                }
            }
            let Some(service) = new else {
                self.cut_off.remove(&id);
                if old.is_some_and(|old| !old.failing.is_empty()) {
                    let none = Event::FailingBackends(id.clone(), BTreeSet::new());
                    update.failing.push(none);
                }
                continue;
            };
            let watches = watches_of(&service);
            touched.extend(watches.keys().copied());
            for backend in watches.keys() {
                let services = self.services_of.entry(*backend).or_default();
                services.insert(id.clone());
            }
            let is_same_mode = old
                .as_ref()
                .is_some_and(|old| old.service.failover == service.failover);
            let (out, failing) = old.map(|old| (old.out, old.failing)).unwrap_or_default();
            affected.insert(id.clone());
            let new = WatchedService {
                service,
                watches,
                // In another mode it is told once more what is out.
                out: if is_same_mode { out } else { BTreeSet::new() },
                failing,
            };
            self.services.insert(id, new);
        }
        self.update_watches(&touched, &mut update);
        self.settle(&affected, &returns, &mut update);
        update
    }

    /// These backends refused an attempt.
    pub(super) fn on_refused(&mut self, backends: &BTreeSet<SocketAddr>, now: Now) -> Update {
        let affected = self.suspect(backends, FailureCause::Refused, now);
        let mut update = Update::default();
        self.settle(&affected, &Returns::new(), &mut update);
        update
    }

    /// The backends that are silent are these.
    pub(super) fn on_silent(&mut self, backends: BTreeSet<SocketAddr>, now: Now) -> Update {
        let mut affected = self.suspect(&backends, FailureCause::Silent, now);
        let mut returns = Returns::new();
        let before = std::mem::replace(&mut self.silent, backends);
        // One that is out is not tried, which does not mean that it answers.
        let answering: Vec<SocketAddr> = before
            .difference(&self.silent)
            .filter(|backend| !self.is_out(backend))
            .copied()
            .collect();
        for backend in answering {
            let suspect = self.suspects.get(&backend);
            if let Some(suspect) = suspect.filter(|suspect| suspect.cause == FailureCause::Silent) {
                returns.insert(backend, Return::Answered(suspect.age(now)));
                self.suspects.forget(backend);
                affected.extend(self.services_of(&backend).cloned());
            }
        }
        let mut update = Update::default();
        self.settle(&affected, &returns, &mut update);
        update
    }

    /// A probe has ended.
    pub(super) fn on_probed(&mut self, backend: SocketAddr, is_answered: bool, now: Now) -> Update {
        let mut update = Update::default();
        if let Some(after) = self.suspects.on_probed(backend, is_answered, now) {
            let affected = self.services_of(&backend).cloned().collect();
            let returns = Returns::from([(backend, Return::Answered(after))]);
            self.settle(&affected, &returns, &mut update);
        }
        update
    }

    /// Whether the kernel counts attempts and answers. If it does not, nothing is known, and every backend comes back.
    pub(super) fn on_state(&mut self, state: Result<(), String>) -> Update {
        let error = state.err();
        let mut update = Update::default();
        if self.error == error {
            return update;
        }
        if let Some(error) = &error {
            update.warn(format!("failover does not work: {error}"));
        } else {
            update.note("failover works again".to_owned());
        }
        self.error = error;
        self.silent.clear();
        self.cut_off.clear();
        let suspects = self.suspects.forget_all();
        let affected = suspects
            .iter()
            .flat_map(|backend| self.services_of(backend))
            .cloned()
            .collect();
        let returns = suspects
            .into_iter()
            .map(|backend| (backend, Return::KernelError))
            .collect();
        self.settle(&affected, &returns, &mut update);
        update
    }

    /// When [`Self::on_timer`] has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.suspects.deadline()
    }

    /// Begins the probes and trials that are due.
    pub(super) fn on_timer(&mut self, now: Now) -> Update {
        let trials = self.suspects.take_trials(now);
        let affected = trials
            .iter()
            .flat_map(|backend| self.services_of(backend))
            .cloned()
            .collect();
        let returns = trials
            .into_iter()
            .map(|backend| (backend, Return::Trial))
            .collect();
        let mut update = Update::default();
        let probes = self.suspects.take_probes(now);
        update.outputs.extend(probes.into_iter().map(Output::Probe));
        self.settle(&affected, &returns, &mut update);
        update
    }
}

/// Views.
impl Failover {
    /// The state for users; none if no service has failover.
    pub(super) fn status(&self) -> Option<FailoverStatus> {
        if self.services.is_empty() {
            return None;
        }
        let out = || {
            self.suspects.iter().flat_map(|(backend, suspect)| {
                let services = self.services_of(backend).filter(|id| {
                    let service = self.services.get(*id);
                    service.is_some_and(|service| service.failing.contains(backend))
                });
                services.map(move |service| FailingBackend {
                    service: service.clone(),
                    backend: *backend,
                    cause: suspect.cause,
                    since: suspect.since.time,
                })
            })
        };
        Some(FailoverStatus {
            watched: self.watched.len(),
            out: out().count(),
            backends: out().take(MAX_SHOWN).collect(),
            cut_off: self.cut_off.iter().take(MAX_SHOWN).cloned().collect(),
            error: self.error.clone(),
        })
    }
}

/// Decisions.
impl Failover {
    /// The watched services of a backend.
    fn services_of(&self, backend: &SocketAddr) -> impl Iterator<Item = &ServiceId> {
        self.services_of.get(backend).into_iter().flatten()
    }

    /// True if the backend is out somewhere.
    fn is_out(&self, backend: &SocketAddr) -> bool {
        self.services_of(backend)
            .filter_map(|id| self.services.get(id))
            .any(|service| service.failing.contains(backend))
    }

    /// Adds those of the backends that are watched to the suspects. Returns the services of those for which that is new.
    fn suspect(
        &mut self,
        backends: &BTreeSet<SocketAddr>,
        cause: FailureCause,
        now: Now,
    ) -> BTreeSet<ServiceId> {
        let mut affected = BTreeSet::new();
        if self.error.is_some() {
            return affected;
        }
        for backend in backends {
            if let Some(services) = self.services_of.get(backend)
                && self.suspects.add(*backend, cause, now)
            {
                affected.extend(services.iter().cloned());
            }
        }
        affected
    }

    /// Sends how these backends are watched now, where that has changed.
    fn update_watches(&mut self, touched: &BTreeSet<SocketAddr>, update: &mut Update) {
        let mut changes = BTreeMap::new();
        for backend in touched {
            let of_services = self
                .services_of
                .get(backend)
                .into_iter()
                .flatten()
                .filter_map(|id| self.services.get(id)?.watches.get(backend).copied());
            let watch = of_services.reduce(union);
            if watch.is_none() {
                self.services_of.remove(backend);
                self.suspects.forget(*backend);
                self.silent.remove(backend);
            }
            let before = match watch {
                Some(watch) => self.watched.insert(*backend, watch),
                None => self.watched.remove(backend),
            };
            if before != watch {
                changes.insert(*backend, watch);
            }
        }
        if !changes.is_empty() {
            update.outputs.push(Output::WatchBackends(changes));
        }
    }

    /// Decides anew for these services, and says what has changed.
    fn settle(&mut self, affected: &BTreeSet<ServiceId>, returns: &Returns, update: &mut Update) {
        for id in affected {
            let Some(watched) = self.services.get_mut(id) else {
                continue;
            };
            let decision = decide(&watched.service, &self.suspects);
            let is_on = watched.service.failover == FailoverMode::On;
            let say = |update: &mut Update, text: String| {
                if is_on {
                    update.changes.push(format!("{id}: {text}"));
                } else {
                    update.note(format!("{id}: {text} (observe)"));
                }
            };
            match (decision.cut_off, self.cut_off.contains(id)) {
                (Some((silent, all)), false) => {
                    self.cut_off.insert(id.clone());
                    update.warn(format!(
                        "{id}: this node may be cut off: {silent} of {all} backends do not answer; none leaves"
                    ));
                }
                (None, true) => {
                    self.cut_off.remove(id);
                    update.note(format!("{id}: this node is not cut off: backends answer"));
                }
                _ => {}
            }
            for backend in decision.out.difference(&watched.out) {
                let Some(suspect) = self.suspects.get(backend) else {
                    continue;
                };
                let others = match others_that_work(&watched.service, backend, &decision.out) {
                    1 => "1 other works".to_owned(),
                    others => format!("{others} others work"),
                };
                let would = if is_on { "" } else { "; would leave" };
                let cause = suspect.cause;
                say(
                    update,
                    format!("backend {backend} {cause}; {others}{would}"),
                );
                if is_on {
                    let left = Metric::BackendLeft(cause);
                    update.outputs.push(Output::Count(left));
                }
            }
            // Most services have none that is out.
            let ready = if watched.out.is_empty() {
                BTreeSet::new()
            } else {
                ready_backends(&watched.service)
            };
            for backend in watched.out.difference(&decision.out) {
                if is_on {
                    update.outputs.push(Output::Count(Metric::BackendReturned));
                }
                let text = match returns.get(backend) {
                    // It is not chosen, whatever it answers.
                    _ if !ready.contains(backend) => continue,
                    Some(reason) => format!("backend {backend} {reason}"),
                    None if decision.cut_off.is_some() => {
                        format!("backend {backend} is chosen again: too many are silent")
                    }
                    None => format!("backend {backend} is chosen again: no other works"),
                };
                say(update, text);
            }
            watched.out = decision.out;
            let failing = if is_on {
                watched.out.clone()
            } else {
                BTreeSet::new()
            };
            if watched.failing != failing {
                watched.failing.clone_from(&failing);
                let event = Event::FailingBackends(id.clone(), failing);
                update.failing.push(event);
            }
        }
    }
}

impl Update {
    fn note(&mut self, description: String) {
        self.notes.push(Note {
            description,
            is_warning: false,
        });
    }

    fn warn(&mut self, description: String) {
        self.notes.push(Note {
            description,
            is_warning: true,
        });
    }
}
