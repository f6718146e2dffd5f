//! Requests of other tasks to the node. A request carries the channel for its answer.

use std::fmt;

use contiv_model::Snapshot;
use contiv_renderer::Description;
use tokio::sync::{mpsc, oneshot};

use contiv_node::{
    Core,
    message::{Answer, Input, RequestId},
};

/// The channel of an answer.
pub type Reply<T> = oneshot::Sender<T>;

/// A request of another task.
#[derive(Debug)]
pub enum Request {
    /// A question about the state.
    Ask(Question),
    /// An input that nobody waits for.
    Input(Input),
    /// An input that is answered: the driver assigns its id.
    Answered(Call<dyn FnOnce(RequestId) -> Input + Send>, Reply<Answer>),
    /// Answered when every renderer has applied its first snapshot.
    AwaitReady(Reply<()>),
    /// The applied state of a renderer, sent when it is idle. The first channel answers false if there is none of this name.
    Describe(String, Reply<bool>, Reply<Description>),
    /// Stop, and leave the dataplane in place.
    Shutdown,
}

impl Request {
    /// An input with an answer, and the channel of that.
    pub fn answered(
        input: impl FnOnce(RequestId) -> Input + Send + 'static,
    ) -> (Self, oneshot::Receiver<Answer>) {
        let (reply, answer) = oneshot::channel();
        (Self::Answered(Call(Box::new(input)), reply), answer)
    }
}

/// A question about the state, answered between two inputs.
pub type Question = Call<dyn FnOnce(&Core) + Send>;

impl Question {
    /// The question, and the channel of its answer.
    pub fn new<T: Send + 'static>(
        ask: impl FnOnce(&Core) -> T + Send + 'static,
    ) -> (Self, oneshot::Receiver<T>) {
        let (reply, answer) = oneshot::channel();
        // A dropped receiver is ignored.
        (Self(Box::new(|core| drop(reply.send(ask(core))))), answer)
    }
}

/// A function that is called by the driver.
pub struct Call<F: ?Sized>(pub(super) Box<F>);

impl<F: ?Sized> fmt::Debug for Call<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}

/// What the services are.
///
/// # Errors
/// When the node is stopping, or has not read the store yet; as text.
pub(crate) async fn snapshot(requests: &mpsc::Sender<Request>) -> Result<Snapshot, String> {
    let (question, answer) = Question::new(Core::snapshot);
    let stopping = "the agent is stopping";
    let sent = requests.send(Request::Ask(question)).await;
    sent.map_err(|_| stopping.to_owned())?;
    let snapshot = answer.await.map_err(|_| stopping.to_owned())?;
    snapshot.ok_or_else(|| "the store has not been read yet; see /readiness".to_owned())
}
