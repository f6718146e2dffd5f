//! The callers of `POST /pods` and `DELETE /pods`, as CNI plugins are: each gets exactly one answer in time, and what it was told
//! holds, until the pod is attached or detached again.

use std::{collections::BTreeMap, time::Duration};

use contiv_agent::node::{
    Answer,
    message::{Input, RequestId},
};
use contiv_model::{InterfaceName, PodId};
use rand::{RngExt as _, rngs::SmallRng};

/// How long a caller waits.
const LIMIT: Duration = Duration::from_secs(5);

type Attached = BTreeMap<PodId, InterfaceName>;

/// A request that has no answer yet.
#[derive(Debug)]
struct Waiting {
    pod: PodId,
    /// What it asks for: this interface, or none.
    interface: Option<InterfaceName>,
    until: Duration,
}

/// What the last caller was told that got what it asked for.
#[derive(Debug, Default)]
struct Promise {
    request: u64,
    interface: Option<InterfaceName>,
}

/// All callers.
#[derive(Debug, Default)]
pub(crate) struct PodCallers {
    last_request: u64,
    waiting: BTreeMap<RequestId, Waiting>,
    promises: BTreeMap<PodId, Promise>,
    /// A caller that asks for the same again, and when.
    repeat: Option<(Duration, PodId, InterfaceName)>,
}

impl PodCallers {
    /// Somebody attaches a pod, and may ask again before there is an answer.
    pub(crate) fn add(&mut self, rng: &mut SmallRng, now: Duration) -> Input {
        let number = rng.random_range(0..2);
        let pod = PodId::new("default", format!("p{number}"));
        let interface = InterfaceName::new(format!("veth{number}{}", rng.random_range(0..2)));
        if rng.random() {
            let at = now + LIMIT.mul_f64(rng.random_range(0.0..1.2));
            self.repeat = Some((at, pod.clone(), interface.clone()));
        }
        self.add_pod(pod, interface, now)
    }

    /// When somebody asks again.
    pub(crate) fn next_repeat(&self) -> Option<Duration> {
        self.repeat.as_ref().map(|(at, ..)| *at)
    }

    /// Somebody asks again.
    pub(crate) fn repeat(&mut self, now: Duration) -> Option<Input> {
        let (_, pod, interface) = self.repeat.take()?;
        Some(self.add_pod(pod, interface, now))
    }

    /// Somebody detaches a pod.
    pub(crate) fn delete(&mut self, rng: &mut SmallRng, now: Duration) -> Input {
        let pod = PodId::new("default", format!("p{}", rng.random_range(0..2)));
        let request = self.ask(pod.clone(), None, now);
        Input::DeletePod(pod, request)
    }

    fn add_pod(&mut self, pod: PodId, interface: InterfaceName, now: Duration) -> Input {
        let request = self.ask(pod.clone(), Some(interface.clone()), now);
        Input::AddPod { pod, interface, wait: Some((LIMIT, request)) }
    }

    fn ask(&mut self, pod: PodId, interface: Option<InterfaceName>, now: Duration) -> RequestId {
        self.last_request += 1;
        let request = RequestId(self.last_request);
        self.waiting.insert(request, Waiting { pod, interface, until: now + LIMIT });
        request
    }

    /// A caller gets its answer.
    pub(crate) fn on_answer(&mut self, request: RequestId, answer: &Answer) -> Result<(), String> {
        let Some(Waiting { pod, interface, .. }) = self.waiting.remove(&request) else {
            return Err(format!("{request:?} is answered, and nobody waits for it: {answer:?}"));
        };
        let promise = self.promises.entry(pod).or_default();
        if answer.is_ok() && promise.request < request.0 {
            *promise = Promise { request: request.0, interface };
        }
        Ok(())
    }

    /// The agent has ended, and with it its connections. Whether a pod is attached for which somebody waited is open.
    pub(crate) fn lose_agent(&mut self) {
        self.repeat = None;
        for waiting in std::mem::take(&mut self.waiting).into_values() {
            self.promises.remove(&waiting.pod);
        }
    }

    /// The machine has ended, and with it all pods.
    pub(crate) fn lose_pods(&mut self) {
        self.lose_agent();
        self.promises.clear();
    }

    /// Compares with what is attached.
    pub(crate) fn check(&self, attached: &Attached, now: Duration) -> Result<(), String> {
        if let Some((request, waiting)) = self.waiting.iter().find(|(_, waiting)| waiting.until < now) {
            return Err(format!("{request:?} has no answer in time: {waiting:?}"));
        }
        let is_open = |pod: &PodId| self.waiting.values().any(|waiting| waiting.pod == *pod);
        for (pod, promise) in self.promises.iter().filter(|(pod, _)| !is_open(pod)) {
            if attached.get(pod) != promise.interface.as_ref() {
                return Err(format!("pod {pod} has {:?}, and callers know {promise:?}", attached.get(pod)));
            }
        }
        Ok(())
    }
}
