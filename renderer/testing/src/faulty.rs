//! A renderer that injects faults by seed in front of a correct one, to test the code that drives renderers.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use contiv_model::{ChangeSet, ContivService, Snapshot};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use contiv_renderer::{Description, RenderError, Renderer, Report, Watch};

/// The rate of each fault: from 0 (never) to 1 (at every call).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FaultRates {
    /// Nothing is applied, and the call fails.
    pub error: f64,
    /// A part of it is applied, and the call fails.
    pub partial: f64,
    /// All of it is applied, but the call fails: the answer was lost.
    pub lost_answer: f64,
    /// The call panics, and the renderer's memory is lost.
    pub panic: f64,
    /// The call takes up to [`FaultRates::longest_delay`].
    pub delay: f64,
    /// The longest delay of a call.
    pub longest_delay: Duration,
}

impl FaultRates {
    /// No faults.
    pub const NONE: Self = Self {
        error: 0.0,
        partial: 0.0,
        lost_answer: 0.0,
        panic: 0.0,
        delay: 0.0,
        longest_delay: Duration::ZERO,
    };
}

/// Turns the faults of a renderer off for good, so that a test can wait for the final state.
#[derive(Debug, Clone, Default)]
pub struct FaultSwitch(Arc<AtomicBool>);

impl FaultSwitch {
    pub(crate) fn is_off(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// From now on no call fails.
    pub fn turn_off(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A renderer with faults.
#[derive(Debug)]
pub struct Faulty<R> {
    inner: R,
    name: &'static str,
    rates: FaultRates,
    random: StdRng,
    switch: FaultSwitch,
    is_poison: Option<fn(&ContivService) -> bool>,
}

/// The fault of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Error,
    Partial,
    LostAnswer,
}

impl<R: Renderer> Faulty<R> {
    /// Puts faults in front of `inner`. The same seed and the same calls produce the same faults.
    pub fn new(
        inner: R,
        name: &'static str,
        rates: FaultRates,
        seed: u64,
        switch: FaultSwitch,
    ) -> Self {
        Self {
            inner,
            name,
            rates,
            random: StdRng::seed_from_u64(seed),
            switch,
            is_poison: None,
        }
    }

    /// The same, and every call with a service for which this is true fails: nothing is applied, and the error does not name
    /// the service.
    #[must_use]
    pub fn poisoned_by(self, is_poison: fn(&ContivService) -> bool) -> Self {
        Self {
            is_poison: Some(is_poison),
            ..self
        }
    }

    /// Fails if one of these is poison. The switch does not turn that off.
    fn refuse_poison<'a>(
        &self,
        mut services: impl Iterator<Item = &'a Arc<ContivService>>,
    ) -> Result<(), RenderError> {
        match self.is_poison {
            Some(is_poison) if services.any(|service| is_poison(service)) => {
                Err(RenderError::Kernel {
                    action: "go on".to_owned(),
                    reason: "some service is poison".to_owned(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Draws a fault, after its delay.
    ///
    /// # Panics
    /// At the given rate.
    fn fault(&mut self) -> Fault {
        // Always drawn, so that turning faults off does not change earlier ones.
        let [delay, panic, error, partial, lost] =
            std::array::from_fn(|_| self.random.random::<f64>());
        if self.switch.is_off() {
            return Fault::None;
        }
        if delay < self.rates.delay {
            thread::sleep(self.rates.longest_delay.mul_f64(self.random.random()));
        }
        assert!(panic >= self.rates.panic, "a fault by seed");
        match () {
            () if error < self.rates.error => Fault::Error,
            () if partial < self.rates.partial => Fault::Partial,
            () if lost < self.rates.lost_answer => Fault::LostAnswer,
            () => Fault::None,
        }
    }

    /// A random subset of the services.
    fn some<K: Ord + Clone, V: Clone>(&mut self, all: &BTreeMap<K, V>) -> BTreeMap<K, V> {
        all.iter()
            .filter(|_| self.random.random())
            .map(|(id, it)| (id.clone(), it.clone()))
            .collect()
    }
}

fn failed(fault: Fault) -> RenderError {
    RenderError::Kernel {
        action: "go on".to_owned(),
        reason: format!("a fault by seed: {fault:?}"),
    }
}

impl<R: Renderer> Renderer for Faulty<R> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare(&mut self) {
        self.inner.prepare();
    }

    fn resync(&mut self, snapshot: &Snapshot) -> Result<Report, RenderError> {
        self.refuse_poison(snapshot.services.values())?;
        let fault = self.fault();
        match fault {
            Fault::None => return self.inner.resync(snapshot),
            Fault::Error => {}
            Fault::Partial => {
                let services = self.some(&snapshot.services);
                self.inner.resync(&Snapshot {
                    services,
                    ..snapshot.clone()
                })?;
            }
            Fault::LostAnswer => drop(self.inner.resync(snapshot)?),
        }
        Err(failed(fault))
    }

    fn update(&mut self, changes: &ChangeSet) -> Result<Report, RenderError> {
        self.refuse_poison(
            changes
                .services
                .values()
                .filter_map(|change| change.new.as_ref()),
        )?;
        let fault = self.fault();
        match fault {
            Fault::None => return self.inner.update(changes),
            Fault::Error => {}
            Fault::Partial => {
                let services = self.some(&changes.services);
                self.inner.update(&ChangeSet {
                    services,
                    ..changes.clone()
                })?;
            }
            Fault::LostAnswer => drop(self.inner.update(changes)?),
        }
        Err(failed(fault))
    }

    fn watch(&mut self) -> Result<Option<Box<dyn Watch>>, RenderError> {
        self.inner.watch()
    }

    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn cleanup(&mut self) -> Result<Report, RenderError> {
        self.inner.cleanup()
    }
}

#[cfg(test)]
mod tests {
    use contiv_renderer::dry_run::DryRun;

    use super::*;

    const ALL: FaultRates = FaultRates {
        error: 0.3,
        partial: 0.3,
        lost_answer: 0.3,
        delay: 0.1,
        longest_delay: Duration::from_millis(1),
        ..FaultRates::NONE
    };

    fn outcomes(rates: FaultRates, seed: u64, switch: &FaultSwitch) -> Vec<bool> {
        let mut renderer = Faulty::new(DryRun::new(), "faulty", rates, seed, switch.clone());
        (0..100)
            .map(|_| renderer.resync(&Snapshot::default()).is_ok())
            .collect()
    }

    #[test]
    fn same_seed_has_same_faults_and_another_has_others() {
        let switch = FaultSwitch::default();
        let first = outcomes(ALL, 1, &switch);
        assert!(first.contains(&true) && first.contains(&false));
        assert_eq!(outcomes(ALL, 1, &switch), first);
        assert_ne!(outcomes(ALL, 2, &switch), first);
        switch.turn_off();
        assert!(!outcomes(ALL, 1, &switch).contains(&false));
    }
}
