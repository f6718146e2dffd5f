//! The callers of `POST /pods` and `DELETE /pods`, such as CNI plugins: each must get exactly one answer in time, and the
//! answer must be true until the pod is attached or detached again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use contiv_model::{InterfaceName, PodId};
use contiv_node::{
    Answer,
    message::{Input, RequestId},
};
use rand::{RngExt as _, rngs::SmallRng};

/// The time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

type Attached = BTreeMap<PodId, InterfaceName>;

/// A request without an answer yet.
#[derive(Debug)]
struct Waiting {
    pod: PodId,
    /// The interface to attach; none to detach.
    interface: Option<InterfaceName>,
    until: Duration,
}

/// The last request that succeeded, and its result.
#[derive(Debug, Default)]
struct ConfirmedRequest {
    request: u64,
    interface: Option<InterfaceName>,
}

/// All callers.
#[derive(Debug, Default)]
pub(crate) struct PodCallers {
    last_request: u64,
    waiting: BTreeMap<RequestId, Waiting>,
    confirmed: BTreeMap<PodId, ConfirmedRequest>,
    /// The pods whose callers lost their connections: whether these are attached is unknown until a request succeeds.
    unknown: BTreeSet<PodId>,
    /// A repetition of the last request, and its time.
    repeat: Option<(Duration, PodId, InterfaceName)>,
}

impl PodCallers {
    /// A request to attach a pod, which may be repeated before its answer.
    pub(crate) fn add(&mut self, rng: &mut SmallRng, now: Duration) -> Input {
        let number = rng.random_range(0..2);
        let pod = PodId::new("default", format!("p{number}"));
        let interface = InterfaceName::new(format!("veth{number}{}", rng.random_range(0..2)));
        if rng.random() {
            let at = now + REQUEST_TIMEOUT.mul_f64(rng.random_range(0.0..1.2));
            self.repeat = Some((at, pod.clone(), interface.clone()));
        }
        self.add_pod(pod, interface, now)
    }

    /// The time of the next repetition.
    pub(crate) fn next_repeat(&self) -> Option<Duration> {
        self.repeat.as_ref().map(|(at, ..)| *at)
    }

    /// Repeats the last request.
    pub(crate) fn repeat(&mut self, now: Duration) -> Option<Input> {
        let (_, pod, interface) = self.repeat.take()?;
        Some(self.add_pod(pod, interface, now))
    }

    /// A request to detach a pod.
    pub(crate) fn delete(&mut self, rng: &mut SmallRng, now: Duration) -> Input {
        let pod = PodId::new("default", format!("p{}", rng.random_range(0..2)));
        let request = self.ask(pod.clone(), None, now);
        Input::DeletePod(pod, request)
    }

    fn add_pod(&mut self, pod: PodId, interface: InterfaceName, now: Duration) -> Input {
        let request = self.ask(pod.clone(), Some(interface.clone()), now);
        Input::AddPod {
            pod,
            interface,
            wait: Some((REQUEST_TIMEOUT, request)),
        }
    }

    fn ask(&mut self, pod: PodId, interface: Option<InterfaceName>, now: Duration) -> RequestId {
        self.last_request += 1;
        let request = RequestId(self.last_request);
        self.waiting.insert(
            request,
            Waiting {
                pod,
                interface,
                until: now + REQUEST_TIMEOUT,
            },
        );
        request
    }

    /// A caller gets its answer.
    pub(crate) fn on_answer(&mut self, request: RequestId, answer: &Answer) -> Result<(), String> {
        let Some(Waiting { pod, interface, .. }) = self.waiting.remove(&request) else {
            return Err(format!(
                "{request:?} got an answer without waiting for one: {answer:?}"
            ));
        };
        let last = self.confirmed.entry(pod.clone()).or_default();
        if answer.is_ok() && last.request < request.0 {
            *last = ConfirmedRequest {
                request: request.0,
                interface,
            };
            self.unknown.remove(&pod);
        }
        Ok(())
    }

    /// The agent has ended, and with it its connections. The pods of pending requests may be attached or not.
    pub(crate) fn lose_agent(&mut self) {
        self.repeat = None;
        let waiting = std::mem::take(&mut self.waiting).into_values();
        self.unknown.extend(waiting.map(|waiting| waiting.pod));
    }

    /// The machine lost power, and with it all pods.
    pub(crate) fn lose_pods(&mut self) {
        self.lose_agent();
        self.confirmed.clear();
        self.unknown.clear();
    }

    /// Compares with the attached pods.
    pub(crate) fn check(&self, attached: &Attached, now: Duration) -> Result<(), String> {
        if let Some((request, waiting)) =
            self.waiting.iter().find(|(_, waiting)| waiting.until < now)
        {
            return Err(format!("{request:?} has no answer in time: {waiting:?}"));
        }
        let is_known = |pod: &PodId| {
            !self.unknown.contains(pod) && !self.waiting.values().any(|waiting| waiting.pod == *pod)
        };
        for (pod, last) in self.confirmed.iter().filter(|(pod, _)| is_known(pod)) {
            if attached.get(pod) != last.interface.as_ref() {
                return Err(format!(
                    "pod {pod} has {:?}, but callers were promised {last:?}",
                    attached.get(pod)
                ));
            }
        }
        Ok(())
    }
}
