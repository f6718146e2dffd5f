//! Backends that refuse or do not answer, as the kernel's half of failover reports them, and the answers to probes.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use contiv_model::{BackendState, ContivService, FailoverMode, Protocol, ServiceId, ServicePort};
use contiv_node::message::{Input, Watch};
use rand::{RngExt as _, rngs::SmallRng, seq::SliceRandom as _};

/// How long a backend does not answer at most.
const MAX_FAILURE: Duration = Duration::from_secs(400);
/// The most backends that fail at once, unless all do.
const MAX_FAILING_AT_ONCE: usize = 4;

/// The backends that do not answer, and what was reported of them.
#[derive(Debug, Default)]
pub(crate) struct FailingBackends {
    /// Until when each does not answer.
    until: BTreeMap<SocketAddr, Duration>,
    /// The silent ones by the last report.
    silent: BTreeSet<SocketAddr>,
    /// The kernel cannot count attempts.
    is_broken: bool,
    /// Those of which the running agent was told.
    reported: BTreeSet<SocketAddr>,
    /// When services last had a failing backend.
    last: BTreeMap<ServiceId, Duration>,
}

impl FailingBackends {
    /// Some of the watched backends fail: they refuse, or are silent. The report.
    pub(crate) fn fail(
        &mut self,
        watched: &BTreeMap<SocketAddr, Watch>,
        rng: &mut SmallRng,
        clock: Duration,
    ) -> Input {
        let chosen = watched.iter().filter(|(_, watch)| watch.is_chosen);
        let mut chosen: Vec<SocketAddr> = chosen.map(|(backend, _)| *backend).collect();
        chosen.shuffle(rng);
        if rng.random_bool(0.9) {
            chosen.truncate(rng.random_range(1..=MAX_FAILING_AT_ONCE));
        }
        let until = clock + MAX_FAILURE.mul_f64(rng.random());
        self.until
            .extend(chosen.iter().map(|backend| (*backend, until)));
        self.reported.extend(chosen.iter().copied());
        let chosen: BTreeSet<SocketAddr> = chosen.into_iter().collect();
        if rng.random() {
            return Input::BackendsRefused(chosen);
        }
        self.silent.extend(chosen);
        Input::BackendsSilent(self.silent.clone())
    }

    /// Every backend answers again. The report.
    pub(crate) fn recover(&mut self) -> Input {
        self.until.clear();
        self.silent.clear();
        Input::BackendsSilent(BTreeSet::new())
    }

    /// The kernel can no longer count attempts, or can again. The report.
    pub(crate) fn break_or_mend(&mut self) -> Input {
        self.is_broken ^= true;
        self.state()
    }

    /// The kernel can count attempts.
    pub(crate) fn mend(&mut self) -> Input {
        self.is_broken = false;
        self.state()
    }

    /// What a driver reports when it starts.
    pub(crate) fn state(&self) -> Input {
        Input::FailoverState(if self.is_broken {
            Err("simulated".to_owned())
        } else {
            Ok(())
        })
    }

    /// The agent stopped, and its counters with it.
    pub(crate) fn agent_stopped(&mut self) {
        self.silent.clear();
        self.reported.clear();
    }

    /// The answer to a probe.
    pub(crate) fn probe(&self, backend: SocketAddr, clock: Duration) -> Input {
        let until = self.until.get(&backend);
        Input::Probed {
            backend,
            is_answered: until.is_none_or(|until| *until < clock),
        }
    }

    /// When the service last had a failing backend.
    pub(crate) fn last(&self, service: &ServiceId) -> Option<Duration> {
        self.last.get(service).copied()
    }

    /// Checks that only backends that failed are failing, and never all of a port and family.
    pub(crate) fn check(
        &mut self,
        services: &[Arc<ContivService>],
        clock: Duration,
    ) -> Result<(), String> {
        for service in services {
            for port in &service.ports {
                for ipv4 in [true, false] {
                    self.check_port(service, port, ipv4, clock)?;
                }
            }
        }
        Ok(())
    }

    fn check_port(
        &mut self,
        service: &ContivService,
        port: &ServicePort,
        ipv4: bool,
        clock: Duration,
    ) -> Result<(), String> {
        let in_state = |state| {
            port.backends
                .iter()
                .filter(move |backend| backend.address.is_ipv4() == ipv4 && backend.state == state)
                .map(contiv_model::Backend::endpoint)
        };
        let mut failing = in_state(BackendState::Failing).peekable();
        if failing.peek().is_none() {
            return Ok(());
        }
        let id = &service.id;
        self.last.insert(id.clone(), clock);
        let is_right_kind = service.failover == FailoverMode::On && port.protocol == Protocol::Tcp;
        if !is_right_kind || self.is_broken {
            return Err(format!("{id} has failing backends without failover"));
        }
        if in_state(BackendState::Ready).next().is_none() {
            return Err(format!("all ready backends of {id} are failing"));
        }
        match failing.find(|backend| !self.reported.contains(backend)) {
            Some(backend) => Err(format!("{backend} of {id} is failing, but it answers")),
            None => Ok(()),
        }
    }
}
