//! Everything that can happen to the loop: one enum.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use contiv_model::PodId;
use contiv_store::Delivery;

use super::{
    pods::PodAddition,
    query::{Query, Reply},
    renderers::{Done, Notice},
    verifiers::Looked,
};
use crate::mirror::MirrorReport;

/// One thing that happened.
#[derive(Debug)]
pub(super) enum Event {
    /// The store said something.
    Store(Delivery),
    /// The mirror said something.
    Mirror(MirrorReport),
    /// A renderer has finished what it was given.
    Renderer(Done),
    /// Others have changed the dataplane of a renderer.
    Notice(Notice),
    /// A verifier has looked at the kernel.
    Looked(Looked),
    /// The moment that some renderer waits for has come.
    Timer,
    /// Somebody asks, and waits for the answer.
    Query(Query),
    /// The addresses of this node's interfaces are these now.
    LocalAddresses(BTreeSet<IpAddr>),
    /// The store is to be listed again and every renderer to be given everything again.
    Resync {
        /// Who wants it.
        cause: &'static str,
    },
    /// Deletions that are held are to count.
    ConfirmDeletions(Reply<bool>),
    /// A pod is attached to this node's dataplane.
    AddPod(PodAddition),
    /// A pod is detached.
    DeletePod(PodId, Reply<bool>),
    /// A renderer that failed is to be given everything again.
    Retry {
        /// Which one.
        renderer: Arc<str>,
    },
    /// The repair that some renderer waited for is due.
    Repair,
    /// A renderer has been busy for too long.
    Slow {
        /// Which one.
        renderer: Arc<str>,
    },
    /// The end.
    Shutdown,
}

/// What other tasks may ask of the loop.
#[derive(Debug)]
pub enum Request {
    /// A question.
    Query(Query),
    /// Take in that the addresses of this node's interfaces are these now.
    LocalAddresses(BTreeSet<IpAddr>),
    /// List the store again, and give every renderer everything again.
    Resync {
        /// Who wants it, as in "SIGHUP".
        cause: &'static str,
    },
    /// Let the deletions that are held count. Answers false if there are none.
    ConfirmDeletions(Reply<bool>),
    /// Attach a pod to this node's dataplane.
    AddPod(PodAddition),
    /// Detach a pod. Answers false if it was not attached.
    DeletePod(PodId, Reply<bool>),
    /// Stop, and leave the dataplane in place.
    Shutdown,
}

impl From<Request> for Event {
    fn from(request: Request) -> Self {
        match request {
            Request::Query(query) => Self::Query(query),
            Request::LocalAddresses(addresses) => Self::LocalAddresses(addresses),
            Request::Resync { cause } => Self::Resync { cause },
            Request::ConfirmDeletions(reply) => Self::ConfirmDeletions(reply),
            Request::AddPod(addition) => Self::AddPod(addition),
            Request::DeletePod(pod, reply) => Self::DeletePod(pod, reply),
            Request::Shutdown => Self::Shutdown,
        }
    }
}
