//! Requests of other tasks to the node, and the answers from the core's state. A request carries the channel for its answer.

use std::{collections::BTreeSet, fmt, net::IpAddr, time::Duration};

use contiv_model::{InterfaceName, LocalInterfaces, PodId};
use contiv_renderer::Description;
use tokio::sync::oneshot;

use super::{core::Core, message::PodNotAdded};

/// The channel of an answer.
pub type Reply<T> = oneshot::Sender<T>;

/// A request of another task.
#[derive(Debug)]
pub enum Request {
    /// A question about the state.
    Ask(Question),
    /// Answered when every renderer has applied its first snapshot.
    AwaitReady(Reply<()>),
    /// The applied state of a renderer, sent when it is idle. The first channel answers false if there is none of this name.
    Describe(String, Reply<bool>, Reply<Description>),
    /// The current addresses of this node's interfaces.
    LocalAddresses(BTreeSet<IpAddr>),
    /// The current interfaces of this node.
    LocalInterfaces(LocalInterfaces),
    /// List the store again and resync every renderer.
    Resync {
        /// The source of the request, as in "SIGHUP".
        cause: &'static str,
    },
    /// Apply held deletions. Answers false if there are none.
    ConfirmDeletions(Reply<bool>),
    /// Attach a pod to this node's dataplane.
    AddPod(PodAddition),
    /// Detach a pod. Answers false if it was not attached.
    DeletePod(PodId, Reply<bool>),
    /// Stop, and leave the dataplane in place.
    Shutdown,
}

/// A pod that is attached by its main interface.
#[derive(Debug)]
pub struct PodAddition {
    /// The pod.
    pub pod: PodId,
    /// Its interface on the node's side.
    pub interface: InterfaceName,
    /// If the caller waits for the result: for how long, and the channel of the answer. Otherwise renderers that fail retry
    /// until they succeed.
    pub wait: Option<(Duration, Reply<Result<(), PodNotAdded>>)>,
}

/// A question about the state, answered between two inputs.
pub struct Question(Box<dyn FnOnce(&Core) + Send>);

impl Question {
    /// The question, and the channel of its answer.
    pub fn new<T: Send + 'static>(
        ask: impl FnOnce(&Core) -> T + Send + 'static,
    ) -> (Self, oneshot::Receiver<T>) {
        let (reply, answer) = oneshot::channel();
        // A dropped receiver is ignored.
        (Self(Box::new(|core| drop(reply.send(ask(core))))), answer)
    }

    pub(super) fn answer(self, core: &Core) {
        (self.0)(core);
    }
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question").finish_non_exhaustive()
    }
}
