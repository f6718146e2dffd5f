//! The newest connections, for pages. They are watched only while somebody looks: each view extends a lease.
//!
//! Each filter has a ring of its own, which a task owns; views ask it. A view chooses a verdict itself, since that of a connection
//! changes. The kernel does not tell of each change, so while somebody looks the connections that are there are listed again.

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
use contiv_node::flows::{FlowFilter, FlowNews, FlowVerdict, ServiceFlow};
use futures::future::{BoxFuture, FutureExt};
use jiff::{SignedDuration, Timestamp};
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    task::JoinSet,
    time::{Instant, sleep_until},
};

use crate::flows::{Flows, Piece, Pieces};

/// How many connections a ring has.
pub(super) const MAX_CONNECTIONS: usize = 1_000;
/// How many filters are watched at the same time, which is half of the watchers that there may be.
const MAX_RINGS: usize = 4;
/// A ring that was looked at so lately has an open page, and does not make room for another one.
const IN_USE_TIME: Duration = Duration::from_secs(15);
/// How long connections are watched after a view.
pub(super) const LEASE: Duration = Duration::from_secs(60);
/// How many notices are shown, the newest ones.
const MAX_NOTICES: usize = 3;
/// A connection is listed again when it has had this time for an answer.
const ANSWER_TIME: SignedDuration = SignedDuration::from_secs(3);
/// The shortest time between two lists of a ring.
const LIST_INTERVAL: Duration = Duration::from_secs(5);
/// Lists take at most one part in so many of the time.
const LIST_SHARE: u32 = 20;
/// How many views wait for a ring.
const MAX_WAITING_VIEWS: usize = 16;
/// How often a view comes anew whose ring ended just as it came.
const MAX_VIEW_STARTS: usize = 2;

/// What a page shows.
#[derive(Debug, Clone)]
pub(super) struct RecentView {
    /// Those with the verdict that is asked for, the newest first.
    pub(super) flows: Vec<ServiceFlow>,
    /// How many there are of each verdict, also of others than that.
    pub(super) verdicts: BTreeMap<FlowVerdict, usize>,
    /// How many have only begun, as far as is known.
    pub(super) begun: usize,
    /// What is to be known of them, and since when.
    pub(super) notices: Vec<(Timestamp, String)>,
    /// When the watch began.
    pub(super) since: Timestamp,
    /// This view began it.
    pub(super) is_first: bool,
}

/// What became of a connection; none if it has begun and no more is known.
pub(super) fn known_verdict(flow: &ServiceFlow) -> Option<FlowVerdict> {
    (flow.event != FlowNews::New || flow.is_answered).then_some(flow.verdict)
}

/// What a connection is recognized by: the kernel uses its numbers again.
type Key = (Option<u32>, SocketAddr, SocketAddr, Protocol);

/// The newest connections of a filter. What is told of one that is there takes its place.
#[derive(Debug)]
struct Ring {
    since: Timestamp,
    /// Nobody has looked yet.
    is_new: bool,
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
            is_new: true,
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

    /// True if a list may say more of a connection.
    fn needs_list(&self, now: Timestamp) -> bool {
        self.flows
            .values()
            .any(|flow| is_open(flow) && now.duration_since(flow.at) >= ANSWER_TIME)
    }

    /// Takes over the state of connections that are there, and have had the time for an answer. True if that is another one.
    fn refresh(&mut self, list: Piece) -> bool {
        let mut is_changed = false;
        for mut listed in list.flows {
            let place = self.places.get(&key(&listed));
            let Some(known) = place.and_then(|place| self.flows.get_mut(place)) else {
                continue;
            };
            if !is_open(known)
                || !is_open(&listed)
                || listed.at.duration_since(known.at) < ANSWER_TIME
            {
                continue;
            }
            // A list does not know it.
            listed.started = known.started;
            let shown = |flow: &ServiceFlow| (known_verdict(flow), flow.event, flow.tcp_state);
            is_changed |= shown(known) != shown(&listed);
            *known = listed;
        }
        is_changed
    }

    fn view(&mut self, verdict: Option<FlowVerdict>) -> RecentView {
        let mut verdicts = BTreeMap::new();
        let mut begun = 0;
        for flow in self.flows.values() {
            match known_verdict(flow) {
                Some(verdict) => *verdicts.entry(verdict).or_default() += 1,
                None => begun += 1,
            }
        }
        let is_wanted = |flow: &&ServiceFlow| verdict.is_none() || known_verdict(flow) == verdict;
        RecentView {
            flows: self
                .flows
                .values()
                .rev()
                .filter(is_wanted)
                .cloned()
                .collect(),
            verdicts,
            begun,
            notices: self.notices.iter().cloned().collect(),
            since: self.since,
            is_first: std::mem::take(&mut self.is_new),
        }
    }
}

const fn key(flow: &ServiceFlow) -> Key {
    (flow.id, flow.client, flow.destination, flow.protocol())
}

/// True if it was there when it was told of, and not over.
const fn is_open(flow: &ServiceFlow) -> bool {
    matches!(flow.event, FlowNews::New | FlowNews::Live)
}

/// A view that waits for its answer.
#[derive(Debug)]
struct ViewRequest {
    verdict: Option<FlowVerdict>,
    reply: oneshot::Sender<Result<RecentView, String>>,
}

/// A ring that is kept.
#[derive(Debug)]
struct Leased {
    filter: FlowFilter,
    views: mpsc::Sender<ViewRequest>,
    looked_at: Instant,
}

/// The rings. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct RecentFlows {
    flows: Flows,
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
    /// When they cannot be watched or listed, or too many filters are watched; as text.
    pub(super) async fn view(&self, mut filter: FlowFilter) -> Result<RecentView, String> {
        let verdict = filter.verdict.take();
        for _ in 0..MAX_VIEW_STARTS {
            let start_ring = |views| {
                let flows = self.flows.clone();
                let changes = Arc::clone(&self.changes);
                tokio::spawn(watch_and_keep(flows, filter.clone(), views, changes));
            };
            let views = find_or_start(
                &mut *self.rings.lock().await,
                &filter,
                Instant::now(),
                start_ring,
            )?;
            let (reply, view) = oneshot::channel();
            // Its lease may end just now.
            if views.send(ViewRequest { verdict, reply }).await.is_ok()
                && let Ok(view) = view.await
            {
                return view;
            }
        }
        Err("the watch ended before it was looked at; try again".to_owned())
    }
}

/// Where views of a filter are asked for. If it has no ring `start_ring` starts one, in the place of the one that was looked at least
/// lately if there are too many.
fn find_or_start(
    rings: &mut Vec<Leased>,
    filter: &FlowFilter,
    now: Instant,
    start_ring: impl FnOnce(mpsc::Receiver<ViewRequest>),
) -> Result<mpsc::Sender<ViewRequest>, String> {
    rings.retain(|ring| !ring.views.is_closed());
    if let Some(ring) = rings.iter_mut().find(|ring| ring.filter == *filter) {
        ring.looked_at = now;
        return Ok(ring.views.clone());
    }
    if rings.len() >= MAX_RINGS {
        rings.sort_by_key(|ring| ring.looked_at);
        if now.duration_since(rings[0].looked_at) < IN_USE_TIME {
            let seconds = IN_USE_TIME.as_secs();
            return Err(format!(
                "{MAX_RINGS} other filters were looked at in the last {seconds} s, which is the most; close a page with one, or wait"
            ));
        }
        rings.remove(0);
    }
    let (views, view_requests) = mpsc::channel(MAX_WAITING_VIEWS);
    start_ring(view_requests);
    rings.push(Leased {
        filter: filter.clone(),
        views: views.clone(),
        looked_at: now,
    });
    Ok(views)
}

/// Watches and lists the connections of a filter, and keeps them. If that fails those that wait are told why.
async fn watch_and_keep(
    flows: Flows,
    filter: FlowFilter,
    mut view_requests: mpsc::Receiver<ViewRequest>,
    changes: Arc<AtomicU64>,
) {
    let list = || {
        let (flows, filter) = (flows.clone(), filter.clone());
        async move { flows.list(filter, MAX_CONNECTIONS).await }.boxed()
    };
    let opened = async {
        let pieces = flows.watch(filter.clone()).await?;
        let ring = Ring::new(list().await?, Timestamp::now());
        Ok::<_, String>((ring, pieces))
    };
    match opened.await {
        Ok((ring, pieces)) => keep(ring, pieces, view_requests, list, changes).await,
        Err(reason) => {
            view_requests.close();
            while let Some(request) = view_requests.recv().await {
                // It may not wait any more.
                let _ = request.reply.send(Err(reason.clone()));
            }
        }
    }
}

/// Keeps a ring until nobody has looked at it for a while, or it is given up.
async fn keep(
    mut ring: Ring,
    mut pieces: Pieces,
    mut view_requests: mpsc::Receiver<ViewRequest>,
    list: impl Fn() -> BoxFuture<'static, Result<Piece, String>>,
    changes: Arc<AtomicU64>,
) {
    let mut end = Instant::now() + LEASE;
    let mut lists = JoinSet::new();
    let (mut list_start, mut next_list) = (Instant::now(), Instant::now());
    loop {
        tokio::select! {
            request = view_requests.recv() => {
                let Some(request) = request else { return };
                let now = Instant::now();
                end = now + LEASE;
                if lists.is_empty() && now >= next_list && ring.needs_list(Timestamp::now()) {
                    list_start = now;
                    lists.spawn(list());
                }
                // It may not wait any more.
                let _ = request.reply.send(Ok(ring.view(request.verdict)));
            }
            Some(list) = lists.join_next() => {
                let now = Instant::now();
                next_list = now + LIST_INTERVAL.max(now.duration_since(list_start) * LIST_SHARE);
                // Without a list it goes on with what the kernel tells.
                if let Ok(Ok(list)) = list && ring.refresh(list) {
                    changes.fetch_add(1, Ordering::Relaxed);
                }
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

    fn shown(ring: &mut Ring) -> Vec<(FlowNews, u16)> {
        let flows = ring.view(None).flows.into_iter();
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
        assert_eq!(shown(&mut ring), expected, "the number 1 was used again");
    }

    #[test]
    fn ring_keeps_the_newest_connections_and_notices() {
        let at = Timestamp::UNIX_EPOCH;
        let mut ring = Ring::new(Piece::default(), at);
        let count = u16::try_from(MAX_CONNECTIONS).unwrap() + 5;
        let new = (0..count).map(|port| flow(FlowNews::New, Some(u32::from(port)), port));
        ring.add(flows(new), at);
        let found = shown(&mut ring);
        assert_eq!((found.len(), found[0].1), (MAX_CONNECTIONS, count - 1));
        assert_eq!(ring.places.len(), MAX_CONNECTIONS);
        for text in ["a", "b", "a", "c", "d"] {
            let notices = vec![json!({"text": text})];
            let flows = Vec::new();
            ring.add(Piece { flows, notices }, at);
        }
        let texts: Vec<String> = ring.view(None).notices.into_iter().map(|it| it.1).collect();
        assert_eq!(texts, ["d", "c", "a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn ring_ends_when_nobody_has_looked_for_the_lease() {
        let (sender, pieces) = mpsc::channel(1);
        let (views, view_requests) = mpsc::channel(1);
        let ring = Ring::new(Piece::default(), Timestamp::UNIX_EPOCH);
        let changes = Arc::default();
        let no_list = || async { Err("not needed".to_owned()) }.boxed();
        let kept = keep(ring, pieces, view_requests, no_list, Arc::clone(&changes));
        tokio::spawn(kept);
        let almost = LEASE * 9 / 10;
        tokio::time::sleep(almost).await;
        let new = flows([flow(FlowNews::New, Some(1), 1000)]);
        sender.send(new).await.unwrap();
        sender.send(Piece::default()).await.unwrap();
        assert_eq!(ask(&views, None).await.flows.len(), 1);
        assert_eq!(changes.load(Ordering::Relaxed), 1);
        tokio::time::sleep(almost).await;
        assert!(!sender.is_closed(), "the view has extended it");
        tokio::time::sleep(LEASE / 5).await;
        assert!(sender.is_closed());
    }

    async fn ask(views: &mpsc::Sender<ViewRequest>, verdict: Option<FlowVerdict>) -> RecentView {
        let (reply, view) = oneshot::channel();
        views.send(ViewRequest { verdict, reply }).await.unwrap();
        view.await.unwrap().unwrap()
    }

    #[test]
    fn view_with_a_verdict_follows_connections_to_another_one() {
        let mut ring = Ring::new(Piece::default(), Timestamp::UNIX_EPOCH);
        let told = |event, verdict, is_answered| ServiceFlow {
            verdict,
            is_answered,
            ..flow(event, Some(1), 1000)
        };
        let count = |ring: &mut Ring| {
            let view = ring.view(Some(FlowVerdict::Unanswered));
            (view.flows.len(), view.begun, view.verdicts)
        };
        for (event, verdict, is_answered, shown, begun) in [
            (FlowNews::New, FlowVerdict::Served, false, 0, 1),
            (FlowNews::Live, FlowVerdict::Unanswered, false, 1, 0),
            (FlowNews::Ended, FlowVerdict::Served, true, 0, 0),
        ] {
            ring.add(
                flows([told(event, verdict, is_answered)]),
                Timestamp::UNIX_EPOCH,
            );
            let verdicts = (begun == 0).then_some((verdict, 1)).into_iter().collect();
            assert_eq!(count(&mut ring), (shown, begun, verdicts), "{event}");
        }
    }

    #[test]
    fn list_tells_the_state_of_connections_that_have_had_the_time_to_be_answered() {
        let begun = Timestamp::UNIX_EPOCH;
        let new = |id, port| ServiceFlow {
            started: Some(begun),
            ..flow(FlowNews::New, Some(id), port)
        };
        let mut ring = Ring::new(flows([new(1, 1001), new(2, 1002)]), begun);
        ring.add(flows([flow(FlowNews::Closed, Some(2), 1002)]), begun);
        let list = |at| {
            let of = |id, port| ServiceFlow {
                at,
                verdict: FlowVerdict::Unanswered,
                ..flow(FlowNews::Live, Some(id), port)
            };
            // The last one was not told of.
            flows([of(1, 1001), of(2, 1002), of(3, 1003)])
        };
        let (early, late) = (begun + ANSWER_TIME / 2, begun + ANSWER_TIME);
        assert!(!ring.needs_list(early) && ring.needs_list(late));
        assert!(!ring.refresh(list(early)));
        assert_eq!(ring.view(None).begun, 1);
        assert!(ring.refresh(list(late)));
        let expected = [(FlowNews::Live, 1001), (FlowNews::Closed, 1002)];
        assert_eq!(shown(&mut ring), expected);
        let unanswered = ring.view(Some(FlowVerdict::Unanswered)).flows;
        assert_eq!((unanswered.len(), unanswered[0].started), (1, Some(begun)));
        assert!(
            !ring.refresh(list(late + ANSWER_TIME)),
            "nothing else is known"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn ring_is_listed_again_only_at_intervals_and_while_somebody_looks() {
        let (_sender, pieces) = mpsc::channel(1);
        let (views, view_requests) = mpsc::channel(1);
        let (lists, mut listed) = mpsc::unbounded_channel();
        let ring = Ring::new(
            flows([flow(FlowNews::New, Some(1), 1000)]),
            Timestamp::UNIX_EPOCH,
        );
        let list = move || {
            lists.send(()).unwrap();
            let silent = ServiceFlow {
                at: Timestamp::UNIX_EPOCH + ANSWER_TIME,
                verdict: FlowVerdict::Unanswered,
                ..flow(FlowNews::Live, Some(1), 1000)
            };
            async move { Ok(flows([silent])) }.boxed()
        };
        let changes = Arc::new(AtomicU64::new(0));
        tokio::spawn(keep(
            ring,
            pieces,
            view_requests,
            list,
            Arc::clone(&changes),
        ));
        assert_eq!(ask(&views, None).await.begun, 1);
        tokio::time::sleep(LIST_INTERVAL / 2).await;
        assert_eq!(changes.load(Ordering::Relaxed), 1);
        assert_eq!(
            ask(&views, Some(FlowVerdict::Unanswered)).await.flows.len(),
            1
        );
        tokio::time::sleep(LIST_INTERVAL).await;
        let mut count = || std::iter::from_fn(|| listed.try_recv().ok()).count();
        assert_eq!(count(), 1);
        ask(&views, None).await;
        ask(&views, None).await;
        tokio::time::sleep(LIST_INTERVAL / 2).await;
        assert_eq!(count(), 1);
        assert_eq!(changes.load(Ordering::Relaxed), 1, "nothing is new");
    }

    #[tokio::test(start_paused = true)]
    async fn filters_with_open_pages_do_not_make_room_for_another_one() {
        let start = Instant::now();
        let (mut rings, mut started) = (Vec::new(), Vec::new());
        let mut look = |service: &str, after: Duration| {
            let filter = FlowFilter {
                service: Some(service.into()),
                ..FlowFilter::default()
            };
            let found = find_or_start(&mut rings, &filter, start + after, |requests| {
                started.push((service.to_owned(), requests));
            });
            let of: Vec<_> = started.iter().map(|(name, _)| name.clone()).collect();
            found.map(|_| of.concat())
        };
        for service in ["a", "b", "c", "d"] {
            look(service, Duration::ZERO).unwrap();
        }
        let almost = IN_USE_TIME * 9 / 10;
        for service in ["d", "c", "b"] {
            assert_eq!(look(service, almost), Ok("abcd".to_owned()));
        }
        assert!(look("e", almost).unwrap_err().contains("4 other filters"));
        assert_eq!(look("e", IN_USE_TIME), Ok("abcde".to_owned()));
        assert!(look("a", IN_USE_TIME).is_err(), "others are looked at");
        assert!(started[0].1.recv().await.is_none(), "its task ends");
        assert_eq!(rings.len(), MAX_RINGS);
    }

    #[tokio::test]
    async fn view_that_cannot_watch_says_why_and_leaves_no_ring() {
        // The node has ended.
        let recent = RecentFlows::new(Flows::new(mpsc::channel(1).0));
        for service in ["a", "b", "c", "d", "e"] {
            let filter = FlowFilter {
                service: Some(service.into()),
                ..FlowFilter::default()
            };
            let reason = recent.view(filter).await.unwrap_err();
            assert!(!reason.contains("other filters"), "{reason}");
        }
    }
}
