//! The newest connections, for pages. They are watched only while somebody looks: each view extends a lease.
//!
//! Each filter has a ring of its own, which a task owns; views ask it.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use contiv_model::Protocol;
use contiv_node::flows::{FlowFilter, ServiceFlow};
use jiff::Timestamp;
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time::{Instant, sleep_until},
};

use crate::flows::{Flows, Piece, Pieces};

/// How many connections a ring has.
pub(super) const MAX_CONNECTIONS: usize = 1_000;
/// How many filters are watched at the same time, which is half of the watchers that there may be. Another one takes the place of the
/// one that was looked at least lately.
const MAX_RINGS: usize = 4;
/// How long connections are watched after a view.
pub(super) const LEASE: Duration = Duration::from_secs(60);
/// How many notices are shown, the newest ones.
const MAX_NOTICES: usize = 3;

/// What a page shows.
#[derive(Debug, Clone)]
pub(super) struct RecentView {
    /// The newest first.
    pub(super) flows: Vec<ServiceFlow>,
    /// What is to be known of them, and since when.
    pub(super) notices: Vec<(Timestamp, String)>,
    /// When the watch began.
    pub(super) since: Timestamp,
    /// This view began it.
    pub(super) is_first: bool,
}

/// What a connection is recognized by: the kernel uses its numbers again.
type Key = (Option<u32>, SocketAddr, SocketAddr, Protocol);

/// The newest connections of a filter. What is told of one that is there takes its place.
#[derive(Debug)]
struct Ring {
    since: Timestamp,
    /// By when each was told of first.
    flows: BTreeMap<u64, ServiceFlow>,
    places: BTreeMap<Key, u64>,
    next_place: u64,
    notices: VecDeque<(Timestamp, String)>,
}

impl Ring {
    /// A ring with the connections that are there.
    fn new(list: Piece, since: Timestamp) -> Self {
        let mut ring = Self {
            since,
            flows: BTreeMap::new(),
            places: BTreeMap::new(),
            next_place: 0,
            notices: VecDeque::new(),
        };
        let Piece { mut flows, notices } = list;
        // So they are shown in the order of the list.
        flows.reverse();
        ring.add(Piece { flows, notices }, since);
        ring
    }

    fn add(&mut self, piece: Piece, at: Timestamp) {
        for flow in piece.flows {
            let place = self.places.entry(key(&flow)).or_insert(self.next_place);
            self.next_place = self.next_place.max(*place + 1);
            self.flows.insert(*place, flow);
            if self.flows.len() > MAX_CONNECTIONS
                && let Some((_, oldest)) = self.flows.pop_first()
            {
                self.places.remove(&key(&oldest));
            }
        }
        for notice in piece.notices {
            let text = notice["text"].as_str().unwrap_or_default();
            self.notices.retain(|(_, known)| known != text);
            self.notices.push_front((at, text.to_owned()));
            self.notices.truncate(MAX_NOTICES);
        }
    }

    fn view(&self) -> RecentView {
        RecentView {
            flows: self.flows.values().rev().cloned().collect(),
            notices: self.notices.iter().cloned().collect(),
            since: self.since,
            is_first: false,
        }
    }
}

const fn key(flow: &ServiceFlow) -> Key {
    (flow.id, flow.client, flow.destination, flow.protocol())
}

type ViewRequests = mpsc::Receiver<oneshot::Sender<RecentView>>;

/// A ring that is kept.
#[derive(Debug)]
struct Leased {
    filter: FlowFilter,
    views: mpsc::Sender<oneshot::Sender<RecentView>>,
}

/// The rings. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct RecentFlows {
    flows: Flows,
    /// The one that was looked at last is the last.
    rings: Arc<Mutex<Vec<Leased>>>,
    changes: Arc<AtomicU64>,
}

impl RecentFlows {
    pub(super) fn new(flows: Flows) -> Self {
        Self {
            flows,
            rings: Arc::default(),
            changes: Arc::default(),
        }
    }

    /// A number that grows with each change of a ring.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// The newest connections that match. The first view begins to watch them.
    ///
    /// # Errors
    /// When they cannot be watched or listed; as text.
    pub(super) async fn view(&self, filter: FlowFilter) -> Result<RecentView, String> {
        let mut rings = self.rings.lock().await;
        rings.retain(|ring| !ring.views.is_closed());
        if let Some(at) = rings.iter().position(|ring| ring.filter == filter) {
            let (reply, view) = oneshot::channel();
            // Its lease may end just now.
            if rings[at].views.send(reply).await.is_ok()
                && let Ok(view) = view.await
            {
                rings[at..].rotate_left(1);
                return Ok(view);
            }
            rings.remove(at);
        }
        if rings.len() >= MAX_RINGS {
            rings.remove(0);
        }
        let pieces = self.flows.watch(filter.clone()).await?;
        let list = self.flows.list(filter.clone(), MAX_CONNECTIONS).await?;
        let ring = Ring::new(list, Timestamp::now());
        let view = RecentView {
            is_first: true,
            ..ring.view()
        };
        let (views, view_requests) = mpsc::channel(1);
        tokio::spawn(keep(ring, pieces, view_requests, Arc::clone(&self.changes)));
        rings.push(Leased { filter, views });
        Ok(view)
    }
}

/// Keeps a ring until nobody has looked at it for a while, or it is given up.
async fn keep(
    mut ring: Ring,
    mut pieces: Pieces,
    mut view_requests: ViewRequests,
    changes: Arc<AtomicU64>,
) {
    let mut end = Instant::now() + LEASE;
    loop {
        tokio::select! {
            request = view_requests.recv() => {
                let Some(reply) = request else { return };
                end = Instant::now() + LEASE;
                // It may not wait any more.
                let _ = reply.send(ring.view());
            }
            piece = pieces.recv() => {
                let Some(piece) = piece else { return };
                if !piece.is_empty() {
                    changes.fetch_add(1, Ordering::Relaxed);
                    ring.add(piece, Timestamp::now());
                }
            }
            () = sleep_until(end) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use contiv_model::{Frontend, ServiceId};
    use contiv_node::flows::{FlowNews, FlowVerdict};
    use serde_json::json;

    use super::*;

    fn flow(event: FlowNews, id: Option<u32>, port: u16) -> ServiceFlow {
        ServiceFlow {
            event,
            at: Timestamp::UNIX_EPOCH,
            id,
            service: ServiceId::new("shop", "web"),
            frontend: Frontend::NodePort {
                protocol: Protocol::Tcp,
                port: 30080,
            },
            client: ([10, 0, 0, 9], port).into(),
            destination: ([10, 0, 0, 1], 30080).into(),
            backend: None,
            source: None,
            verdict: FlowVerdict::Served,
            reason: None,
            tcp_state: None,
            is_answered: false,
            started: None,
            traffic: None,
        }
    }

    fn flows(flows: impl IntoIterator<Item = ServiceFlow>) -> Piece {
        Piece {
            flows: flows.into_iter().collect(),
            notices: Vec::new(),
        }
    }

    fn shown(ring: &Ring) -> Vec<(FlowNews, u16)> {
        let flows = ring.view().flows.into_iter();
        flows.map(|flow| (flow.event, flow.client.port())).collect()
    }

    #[test]
    fn news_of_a_connection_take_its_place_and_new_ones_come_first() {
        let at = Timestamp::UNIX_EPOCH;
        let listed = [1, 2].map(|id| flow(FlowNews::Live, Some(id), 1000));
        let mut ring = Ring::new(flows(listed), at);
        ring.add(
            flows([
                flow(FlowNews::New, Some(3), 1003),
                flow(FlowNews::Refused, None, 1004),
                flow(FlowNews::Closed, Some(2), 1000),
                flow(FlowNews::Refused, None, 1004),
                flow(FlowNews::New, Some(1), 1005),
            ]),
            at,
        );
        let expected = [
            (FlowNews::New, 1005),
            (FlowNews::Refused, 1004),
            (FlowNews::New, 1003),
            (FlowNews::Live, 1000),
            (FlowNews::Closed, 1000),
        ];
        assert_eq!(shown(&ring), expected, "the number 1 was used again");
    }

    #[test]
    fn ring_keeps_the_newest_connections_and_notices() {
        let at = Timestamp::UNIX_EPOCH;
        let mut ring = Ring::new(Piece::default(), at);
        let count = u16::try_from(MAX_CONNECTIONS).unwrap() + 5;
        let new = (0..count).map(|port| flow(FlowNews::New, Some(u32::from(port)), port));
        ring.add(flows(new), at);
        let found = shown(&ring);
        assert_eq!((found.len(), found[0].1), (MAX_CONNECTIONS, count - 1));
        assert_eq!(ring.places.len(), MAX_CONNECTIONS);
        for text in ["a", "b", "a", "c", "d"] {
            let notices = vec![json!({"text": text})];
            let flows = Vec::new();
            ring.add(Piece { flows, notices }, at);
        }
        let texts: Vec<String> = ring.view().notices.into_iter().map(|it| it.1).collect();
        assert_eq!(texts, ["d", "c", "a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn ring_ends_when_nobody_has_looked_for_the_lease() {
        let (sender, pieces) = mpsc::channel(1);
        let (views, view_requests) = mpsc::channel(1);
        let ring = Ring::new(Piece::default(), Timestamp::UNIX_EPOCH);
        let changes = Arc::default();
        tokio::spawn(keep(ring, pieces, view_requests, Arc::clone(&changes)));
        let almost = LEASE * 9 / 10;
        tokio::time::sleep(almost).await;
        let new = flows([flow(FlowNews::New, Some(1), 1000)]);
        sender.send(new).await.unwrap();
        sender.send(Piece::default()).await.unwrap();
        let (reply, view) = oneshot::channel();
        views.send(reply).await.unwrap();
        assert_eq!(view.await.unwrap().flows.len(), 1);
        assert_eq!(changes.load(Ordering::Relaxed), 1);
        tokio::time::sleep(almost).await;
        assert!(!sender.is_closed(), "the view has extended it");
        tokio::time::sleep(LEASE / 5).await;
        assert!(sender.is_closed());
    }
}
