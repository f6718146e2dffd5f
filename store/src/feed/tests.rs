//! The test plays the store: it answers the requests of the feed.

use std::time::Duration;

use futures::{
    future::BoxFuture,
    stream::{self, BoxStream},
};
use tokio::sync::oneshot;

use super::*;
use crate::{Change, Entry, Transaction};

enum Request {
    List(oneshot::Sender<Result<Snapshot, StoreError>>),
    ListPages(
        PageSender,
        oneshot::Sender<Result<(i64, Vec<Problem>), StoreError>>,
    ),
    Watch(Position, oneshot::Sender<Result<WatchStream, StoreError>>),
    Resume(
        ResumePoint,
        oneshot::Sender<Result<(WatchStream, Vec<Change>), StoreError>>,
    ),
}

struct ScriptedWatch {
    requests: mpsc::UnboundedSender<Request>,
}

impl Store for ScriptedWatch {
    fn list<'a>(&'a self, _prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request::List(reply)).unwrap();
        async { answer.await.unwrap() }.boxed()
    }

    fn list_pages<'a>(
        &'a self,
        _prefix: &'a str,
        pages: &'a PageSender,
    ) -> BoxFuture<'a, Result<(i64, Vec<Problem>), StoreError>> {
        let (reply, answer) = oneshot::channel();
        self.requests
            .send(Request::ListPages(PageSender(pages.0.clone()), reply))
            .unwrap();
        async { answer.await.unwrap() }.boxed()
    }

    fn watch<'a>(
        &'a self,
        _prefix: &'a str,
        _revision: i64,
    ) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        unreachable!("a feed follows from a position")
    }

    fn resume_watch<'a>(
        &'a self,
        _prefix: &'a str,
        position: &'a Position,
    ) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        let (reply, answer) = oneshot::channel();
        self.requests
            .send(Request::Watch(position.clone(), reply))
            .unwrap();
        async { answer.await.unwrap() }.boxed()
    }

    fn resume_saved<'a>(
        &'a self,
        _prefix: &'a str,
        point: &'a ResumePoint,
    ) -> BoxFuture<'a, Result<(WatchStream, Vec<Change>), StoreError>> {
        let (reply, answer) = oneshot::channel();
        self.requests
            .send(Request::Resume(point.clone(), reply))
            .unwrap();
        async { answer.await.unwrap() }.boxed()
    }

    fn read_at<'a>(
        &'a self,
        keys: &'a BTreeSet<String>,
        revision: i64,
    ) -> BoxFuture<'a, Result<Vec<Change>, StoreError>> {
        let read = |key: &String| Change::Put(entry(key, revision));
        let changes = keys.iter().map(read).collect();
        async { Ok(changes) }.boxed()
    }

    fn transact(&self, _transaction: Transaction) -> BoxFuture<'_, Result<i64, StoreError>> {
        unreachable!("a feed never writes")
    }
}

/// The store's side of a feed, and the receiver's.
struct Stage {
    requests: mpsc::UnboundedReceiver<Request>,
    events: mpsc::Receiver<Delivery>,
    handle: FeedHandle,
}

type Watch = mpsc::UnboundedSender<Result<WatchEvent, StoreError>>;

impl Stage {
    fn new() -> Self {
        Self::with(Feed::start)
    }

    fn paged() -> Self {
        Self::with(Feed::start_paged)
    }

    fn with(
        start: impl FnOnce(Arc<dyn Store>, &'static str) -> (mpsc::Receiver<Delivery>, FeedHandle),
    ) -> Self {
        let (sender, requests) = mpsc::unbounded_channel();
        let (events, handle) = start(Arc::new(ScriptedWatch { requests: sender }), "/");
        Self {
            requests,
            events,
            handle,
        }
    }

    /// Answers a request for a list in pages: each page is the only one since a begin.
    async fn answer_pages(&mut self, pages: &[&[Entry]], answer: Result<i64, StoreError>) {
        let Some(Request::ListPages(sender, reply)) = self.requests.recv().await else {
            panic!("expected a list in pages")
        };
        for page in pages {
            sender.begin().await;
            sender.send(page.to_vec()).await;
        }
        reply
            .send(answer.map(|revision| (revision, Vec::new())))
            .unwrap();
    }

    async fn expect_page(&mut self, entries: &[Entry]) {
        assert_eq!(self.next().await, FeedEvent::List(ListPart::Started));
        assert_eq!(
            self.next().await,
            FeedEvent::List(ListPart::Page(entries.to_vec()))
        );
    }

    /// Expects the end of a list in pages, and a watch whose position has these entries only.
    async fn expect_complete(&mut self, revision: i64, entries: &[Entry]) {
        let complete = ListPart::Complete {
            revision,
            problems: Vec::new(),
        };
        assert_eq!(self.next().await, FeedEvent::List(complete));
        let Some(Request::Watch(position, _)) = self.requests.recv().await else {
            panic!("expected a watch")
        };
        let (entries, problems) = (entries.to_vec(), Vec::new());
        assert_eq!(
            position,
            Position::of(&Snapshot {
                revision,
                entries,
                problems
            })
        );
    }

    async fn answer_list(&mut self, answer: Result<i64, StoreError>) {
        let Some(Request::List(reply)) = self.requests.recv().await else {
            panic!("expected a list")
        };
        reply.send(answer.map(snapshot)).unwrap();
    }

    async fn answer_watch(&mut self, expected: i64) -> Watch {
        let Some(Request::Watch(position, reply)) = self.requests.recv().await else {
            panic!("expected a watch")
        };
        assert_eq!(position.revision(), expected);
        let (sender, stream) = played_watch();
        assert!(reply.send(Ok(stream)).is_ok());
        sender
    }

    async fn answer_resume(&mut self, answer: Result<Vec<Change>, StoreError>) -> Watch {
        let Some(Request::Resume(point, reply)) = self.requests.recv().await else {
            panic!("expected to go on from what was saved")
        };
        assert_eq!(point, saved_point());
        let (sender, stream) = played_watch();
        assert!(reply.send(answer.map(|changes| (stream, changes))).is_ok());
        sender
    }

    async fn refuse_watch(&mut self, error: StoreError) {
        let Some(Request::Watch(_, reply)) = self.requests.recv().await else {
            panic!("expected a watch")
        };
        assert!(reply.send(Err(error)).is_ok());
    }

    /// The next event, within a day of simulated time.
    async fn next(&mut self) -> FeedEvent {
        let day = Duration::from_secs(86_400);
        let delivery = timeout(day, self.events.recv()).await;
        delivery.expect("no event").unwrap().event
    }

    /// A feed that has listed at revision 5 and watches from there.
    async fn watching() -> (Self, Watch) {
        let mut stage = Self::new();
        stage.answer_list(Ok(5)).await;
        assert_eq!(stage.next().await, FeedEvent::Snapshot(snapshot(5)));
        let watch = stage.answer_watch(5).await;
        (stage, watch)
    }
}

/// A watch whose events the test sends.
fn played_watch() -> (Watch, WatchStream) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let stream: BoxStream<'static, _> = stream::unfold(receiver, |mut receiver| async {
        Some((receiver.recv().await?, receiver))
    })
    .boxed();
    (sender, stream)
}

fn saved_point() -> ResumePoint {
    ResumePoint {
        position: Position::at(5),
        keys: 3,
        deviating: ["/bad".to_owned()].into(),
        identity: None,
    }
}

fn saved() -> SavedStart {
    SavedStart::Usable(Box::new(saved_point()))
}

fn snapshot(revision: i64) -> Snapshot {
    Snapshot {
        revision,
        ..Snapshot::default()
    }
}

fn entry(key: &str, revision: i64) -> Entry {
    Entry {
        key: key.to_owned(),
        value: "1".into(),
        create_revision: revision,
        mod_revision: revision,
    }
}

fn batch(revision: i64) -> Batch {
    Batch {
        revision,
        changes: vec![Change::Delete {
            key: format!("/{revision}"),
        }],
    }
}

fn lost() -> StoreError {
    StoreError::Unavailable {
        endpoint: "there".to_owned(),
        reason: "gone".to_owned(),
    }
}

fn refused() -> StoreError {
    StoreError::Refused {
        action: "read".to_owned(),
        reason: "no login".to_owned(),
    }
}

fn down() -> FeedEvent {
    FeedEvent::Down {
        reason: lost().to_string(),
    }
}

#[tokio::test(start_paused = true)]
async fn snapshot_comes_before_changes() {
    let (mut stage, watch) = Stage::watching().await;
    watch.send(Ok(WatchEvent::Changed(batch(6)))).unwrap();
    watch.send(Ok(WatchEvent::Problems(vec![]))).unwrap();
    watch.send(Ok(WatchEvent::Changed(batch(7)))).unwrap();
    assert_eq!(stage.next().await, FeedEvent::Changed(batch(6)));
    assert_eq!(stage.next().await, FeedEvent::Problems(vec![]));
    assert_eq!(stage.next().await, FeedEvent::Changed(batch(7)));
}

#[tokio::test(start_paused = true)]
async fn pages_before_a_list_begins_again_do_not_count() {
    let mut stage = Stage::paged();
    let [before, after] = [[entry("/a", 9)], [entry("/b", 3)]];
    stage.answer_pages(&[&before, &after], Ok(3)).await;
    stage.expect_page(&before).await;
    stage.expect_page(&after).await;
    stage.expect_complete(3, &after).await;
}

#[tokio::test(start_paused = true)]
async fn list_failing_after_a_page_is_an_outage_and_begins_again() {
    let mut stage = Stage::paged();
    let [before, after] = [[entry("/a", 9)], [entry("/b", 3)]];
    stage.answer_pages(&[&before], Err(lost())).await;
    stage.expect_page(&before).await;
    assert_eq!(stage.next().await, down());
    stage.answer_pages(&[&after], Ok(3)).await;
    stage.expect_page(&after).await;
    stage.expect_complete(3, &after).await;
}

#[tokio::test(start_paused = true)]
async fn problem_of_key_ends_with_next_change_of_key() {
    let problem = |source: &str| Problem {
        source: source.to_owned(),
        object: None,
        field: None,
        reason: "too large".to_owned(),
        is_warning: false,
    };
    let problems: Vec<_> = ["/6", "/8", "a.yaml"].map(problem).into();
    let mut stage = Stage::new();
    let Some(Request::List(reply)) = stage.requests.recv().await else {
        panic!("expected a list")
    };
    reply
        .send(Ok(Snapshot {
            revision: 5,
            problems: problems.clone(),
            ..Snapshot::default()
        }))
        .unwrap();
    assert!(matches!(stage.next().await, FeedEvent::Snapshot(_)));
    let watch = stage.answer_watch(5).await;
    for revision in 6..9 {
        watch
            .send(Ok(WatchEvent::Changed(batch(revision))))
            .unwrap();
    }
    assert_eq!(stage.next().await, FeedEvent::Changed(batch(6)));
    assert_eq!(
        stage.next().await,
        FeedEvent::Problems(problems[1..].to_vec())
    );
    assert_eq!(stage.next().await, FeedEvent::Changed(batch(7)));
    assert_eq!(stage.next().await, FeedEvent::Changed(batch(8)));
    assert_eq!(
        stage.next().await,
        FeedEvent::Problems(problems[2..].to_vec())
    );
}

#[tokio::test(start_paused = true)]
async fn list_ends_the_problems_of_the_one_before() {
    let problem = Problem {
        source: "/6".to_owned(),
        object: None,
        field: None,
        reason: "too large".to_owned(),
        is_warning: false,
    };
    for mut stage in [Stage::new(), Stage::paged()] {
        for (revision, problems) in [(4, vec![problem.clone()]), (5, vec![])] {
            match stage.requests.recv().await {
                Some(Request::List(reply)) => {
                    reply
                        .send(Ok(Snapshot {
                            problems,
                            ..snapshot(revision)
                        }))
                        .unwrap();
                }
                Some(Request::ListPages(_, reply)) => reply.send(Ok((revision, problems))).unwrap(),
                _ => panic!("expected a list"),
            }
            stage.next().await;
            if revision == 4 {
                stage.answer_watch(revision).await;
                stage.handle.request_resync();
            }
        }
        let watch = stage.answer_watch(5).await;
        for revision in [6, 7] {
            watch
                .send(Ok(WatchEvent::Changed(batch(revision))))
                .unwrap();
            assert_eq!(
                stage.next().await,
                FeedEvent::Changed(batch(revision)),
                "there was no problem"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lost_watch_resumes_at_its_revision_and_is_reported_once() {
    let (mut stage, watch) = Stage::watching().await;
    watch.send(Ok(WatchEvent::Changed(batch(6)))).unwrap();
    // Nothing changed, but the store advanced: the next watch begins here.
    watch
        .send(Ok(WatchEvent::Changed(Batch {
            revision: 9,
            changes: vec![],
        })))
        .unwrap();
    watch.send(Err(lost())).unwrap();
    assert_eq!(stage.next().await, FeedEvent::Changed(batch(6)));
    assert_eq!(stage.next().await, down());
    stage.refuse_watch(lost()).await;
    stage.refuse_watch(lost()).await;
    let watch = stage.answer_watch(9).await;
    assert_eq!(stage.next().await, FeedEvent::Up);
    watch.send(Err(lost())).unwrap();
    assert_eq!(stage.next().await, down(), "the next outage is another one");
}

#[tokio::test(start_paused = true)]
async fn outage_with_a_new_cause_is_reported_again() {
    let (mut stage, watch) = Stage::watching().await;
    watch.send(Err(lost())).unwrap();
    assert_eq!(stage.next().await, down());
    for error in [lost(), refused(), lost(), refused()] {
        stage.refuse_watch(error).await;
    }
    let _watch = stage.answer_watch(5).await;
    assert_eq!(
        stage.next().await,
        FeedEvent::Down {
            reason: refused().to_string()
        }
    );
    assert_eq!(stage.next().await, FeedEvent::Up);
}

#[tokio::test(start_paused = true)]
async fn silent_watch_is_opened_again_at_once_and_is_no_outage() {
    let (mut stage, watch) = Stage::watching().await;
    watch.send(Ok(WatchEvent::Changed(batch(6)))).unwrap();
    let silence = Duration::from_secs(30);
    watch
        .send(Err(StoreError::Silent {
            endpoint: "there".to_owned(),
            silence,
        }))
        .unwrap();
    assert_eq!(stage.next().await, FeedEvent::Changed(batch(6)));
    let start = Instant::now();
    let watch = stage.answer_watch(6).await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    watch.send(Ok(WatchEvent::Changed(batch(7)))).unwrap();
    assert_eq!(stage.next().await, FeedEvent::Changed(batch(7)));
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_while_store_is_down() {
    let mut stage = Stage::new();
    let start = Instant::now();
    for _ in 0..20 {
        stage.answer_list(Err(lost())).await;
    }
    stage.answer_list(Ok(1)).await;
    let waited = start.elapsed();
    assert!(
        waited > Duration::from_secs(30) && waited < Duration::from_secs(80),
        "{waited:?}"
    );
    assert_eq!(stage.next().await, down());
    assert_eq!(stage.next().await, FeedEvent::Snapshot(snapshot(1)));
}

/// A watch that opens and fails at once is no success.
#[tokio::test(start_paused = true)]
async fn pauses_grow_only_while_watches_are_short() {
    for (duration, grows) in [(Duration::from_secs(4), true), (HEALTHY_DURATION, false)] {
        let (mut stage, mut watch) = Stage::watching().await;
        let mut pause = Duration::ZERO;
        for _ in 0..15 {
            tokio::time::sleep(duration).await;
            watch.send(Err(lost())).unwrap();
            let end = Instant::now();
            watch = stage.answer_watch(5).await;
            pause = end.elapsed();
        }
        assert_eq!(
            pause > Duration::from_secs(2),
            grows,
            "{pause:?} after each {duration:?}"
        );
        assert_eq!(
            pause < Duration::from_millis(100),
            !grows,
            "{pause:?} after each {duration:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn missed_changes_make_it_list_again_without_outage() {
    let (mut stage, watch) = Stage::watching().await;
    watch
        .send(Err(StoreError::Compacted {
            requested: 6,
            oldest: 8,
        }))
        .unwrap();
    stage.answer_list(Ok(9)).await;
    assert_eq!(stage.next().await, FeedEvent::Snapshot(snapshot(9)));
    stage.answer_watch(9).await;
}

#[tokio::test(start_paused = true)]
async fn lists_without_a_lasting_watch_are_an_outage_with_growing_pauses() {
    let (mut stage, watch) = Stage::watching().await;
    let compacted = || StoreError::Compacted {
        requested: 6,
        oldest: 8,
    };
    let start = Instant::now();
    watch.send(Err(compacted())).unwrap();
    let mut lists = 0;
    while start.elapsed() < Duration::from_secs(600) {
        stage.answer_list(Ok(9)).await;
        lists += 1;
        assert_eq!(stage.next().await, FeedEvent::Snapshot(snapshot(9)));
        stage.refuse_watch(compacted()).await;
        if lists + 1 >= OUTAGE_LISTS {
            assert_eq!(
                stage.next().await,
                FeedEvent::Down {
                    reason: compacted().to_string()
                }
            );
        }
    }
    assert!((15..35).contains(&lists), "{lists} lists in ten minutes");
    stage.answer_list(Ok(9)).await;
    assert_eq!(stage.next().await, FeedEvent::Snapshot(snapshot(9)));
    let watch = stage.answer_watch(9).await;
    let opened = Instant::now();
    watch.send(Ok(WatchEvent::Changed(batch(10)))).unwrap();
    assert_eq!(stage.next().await, FeedEvent::Changed(batch(10)));
    assert_eq!(stage.next().await, FeedEvent::Up);
    assert_eq!(opened.elapsed(), HEALTHY_DURATION);
    tokio::time::sleep(MAX_RELIST_PAUSE).await;
    let start = Instant::now();
    watch.send(Err(compacted())).unwrap();
    stage.answer_list(Ok(9)).await;
    assert!(
        start.elapsed() < Duration::from_secs(1) + LIST_SPREAD,
        "a watch that lasted begins anew"
    );
}

#[tokio::test(start_paused = true)]
async fn inconsistency_is_reported_with_its_key_and_listed() {
    let (mut stage, watch) = Stage::watching().await;
    let lie = StoreError::Inconsistent {
        inconsistency: Inconsistency::Order,
        key: "/a".to_owned(),
        reason: "twice".to_owned(),
    };
    watch.send(Err(lie)).unwrap();
    let expected = FeedEvent::Inconsistent {
        inconsistency: Inconsistency::Order,
        reason: "/a: twice".to_owned(),
    };
    assert_eq!(stage.next().await, expected);
    stage.answer_list(Ok(9)).await;
    assert_eq!(stage.next().await, FeedEvent::Snapshot(snapshot(9)));
}

#[tokio::test(start_paused = true)]
async fn store_with_other_data_is_reported_and_listed_again() {
    for error in [
        StoreError::Rewound {
            requested: 5,
            newest: 2,
        },
        StoreError::Replaced {
            revision: 5,
            key: "/a".to_owned(),
        },
    ] {
        let (mut stage, watch) = Stage::watching().await;
        watch.send(Err(lost())).unwrap();
        assert_eq!(stage.next().await, down());
        let reason = error.to_string();
        stage.refuse_watch(error).await;
        assert_eq!(stage.next().await, FeedEvent::Replaced { reason });
        stage.answer_list(Ok(8)).await;
        assert_eq!(stage.next().await, FeedEvent::Snapshot(snapshot(8)));
        stage.answer_watch(8).await;
    }
}

#[tokio::test(start_paused = true)]
async fn resync_lists_again_at_once() {
    let (mut stage, _watch) = Stage::watching().await;
    stage.handle.request_resync();
    stage.handle.request_resync();
    stage.answer_list(Ok(6)).await;
    assert_eq!(stage.next().await, FeedEvent::Snapshot(snapshot(6)));
    stage.answer_watch(6).await;
    assert!(
        stage.requests.try_recv().is_err(),
        "two requests before the list are one"
    );
}

#[tokio::test(start_paused = true)]
async fn resync_does_not_wait_for_next_attempt() {
    let mut stage = Stage::new();
    for _ in 0..15 {
        stage.answer_list(Err(lost())).await;
    }
    let start = Instant::now();
    stage.handle.request_resync();
    stage.answer_list(Ok(6)).await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn resync_during_an_outage_lists_again() {
    let (mut stage, watch) = Stage::watching().await;
    watch.send(Err(lost())).unwrap();
    assert_eq!(stage.next().await, down());
    stage.handle.request_resync();
    stage.answer_list(Ok(6)).await;
    assert_eq!(stage.next().await, FeedEvent::Snapshot(snapshot(6)));
    stage.answer_watch(6).await;
}

#[tokio::test(start_paused = true)]
async fn requests_before_a_list_are_answered_by_it() {
    let mut stage = Stage::new();
    stage.handle.request_resync();
    stage.handle.request_renewal();
    stage.answer_list(Ok(5)).await;
    assert_eq!(stage.next().await, FeedEvent::Snapshot(snapshot(5)));
    let watch = stage.answer_watch(5).await;
    watch.send(Ok(WatchEvent::Changed(batch(6)))).unwrap();
    assert_eq!(stage.next().await, FeedEvent::Changed(batch(6)));
    assert!(
        stage.requests.try_recv().is_err(),
        "nothing more is asked for"
    );
}

#[tokio::test(start_paused = true)]
async fn list_in_pages_ends_the_outage() {
    let mut stage = Stage::paged();
    stage.answer_pages(&[], Err(lost())).await;
    assert_eq!(stage.next().await, down());
    stage.answer_pages(&[], Ok(3)).await;
    let complete = ListPart::Complete {
        revision: 3,
        problems: Vec::new(),
    };
    assert_eq!(stage.next().await, FeedEvent::List(complete));
    let watch = stage.answer_watch(3).await;
    watch.send(Ok(WatchEvent::Changed(batch(4)))).unwrap();
    assert_eq!(
        stage.next().await,
        FeedEvent::Changed(batch(4)),
        "no other end of it"
    );
}

#[tokio::test(start_paused = true)]
async fn pauses_begin_anew_after_an_event() {
    let mut stage = Stage::new();
    for _ in 0..10 {
        stage.answer_list(Err(lost())).await;
    }
    stage.answer_list(Ok(5)).await;
    let watch = stage.answer_watch(5).await;
    watch.send(Ok(WatchEvent::Changed(batch(6)))).unwrap();
    watch.send(Err(lost())).unwrap();
    let expected = [
        down(),
        FeedEvent::Snapshot(snapshot(5)),
        FeedEvent::Changed(batch(6)),
        down(),
    ];
    for event in expected {
        assert_eq!(stage.next().await, event);
    }
    let start = Instant::now();
    stage.answer_watch(6).await;
    assert!(
        start.elapsed() < Duration::from_millis(100),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn slow_receiver_holds_feed_back_and_loses_nothing() {
    let (mut stage, watch) = Stage::watching().await;
    for revision in 6..1000 {
        watch
            .send(Ok(WatchEvent::Changed(batch(revision))))
            .unwrap();
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    for revision in 6..1000 {
        assert_eq!(stage.next().await, FeedEvent::Changed(batch(revision)));
    }
}

#[tokio::test(start_paused = true)]
async fn delivery_has_the_time_of_its_receipt() {
    let (mut stage, watch) = Stage::watching().await;
    let start = Instant::now();
    // One more than fits: the feed has read it, and waits.
    for revision in 0..=EVENT_CAPACITY {
        tokio::time::sleep(Duration::from_secs(1)).await;
        watch
            .send(Ok(WatchEvent::Changed(batch(
                6 + i64::try_from(revision).unwrap(),
            ))))
            .unwrap();
    }
    tokio::time::sleep(Duration::from_secs(3600)).await;
    for second in 1..=EVENT_CAPACITY + 1 {
        let delivery = stage.events.recv().await.unwrap();
        assert_eq!(
            delivery.received - start,
            Duration::from_secs(second.try_into().unwrap())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn feed_ends_with_its_receiver_in_every_wait() {
    let (mut stage, watch) = Stage::watching().await;
    drop(stage.events);
    watch.closed().await;
    assert!(stage.requests.recv().await.is_none());

    let mut stage = Stage::new();
    let Some(Request::List(mut reply)) = stage.requests.recv().await else {
        panic!("expected a list")
    };
    drop(stage.events);
    reply.closed().await;
    assert!(stage.requests.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn renewal_resumes_the_watch_and_reports_the_stores_answer() {
    let (mut stage, watch) = Stage::watching().await;
    watch.send(Ok(WatchEvent::Changed(batch(6)))).unwrap();
    assert_eq!(stage.next().await, FeedEvent::Changed(batch(6)));
    stage.handle.request_renewal();
    let watch = stage.answer_watch(6).await;
    assert_eq!(stage.next().await, FeedEvent::Up);
    watch.send(Ok(WatchEvent::Changed(batch(7)))).unwrap();
    assert_eq!(stage.next().await, FeedEvent::Changed(batch(7)));
}

#[tokio::test(start_paused = true)]
async fn renewal_without_answer_ends_with_the_outage_or_a_list() {
    let (mut stage, _watch) = Stage::watching().await;
    stage.handle.request_renewal();
    stage.refuse_watch(lost()).await;
    assert_eq!(stage.next().await, down());
    // A request while it waits causes an immediate attempt.
    stage.handle.request_renewal();
    let _watch = stage.answer_watch(5).await;
    assert_eq!(stage.next().await, FeedEvent::Up, "one for both");
    stage.handle.request_renewal();
    stage
        .refuse_watch(StoreError::Compacted {
            requested: 5,
            oldest: 9,
        })
        .await;
    stage.answer_list(Ok(9)).await;
    assert_eq!(stage.next().await, FeedEvent::Snapshot(snapshot(9)));
    let watch = stage.answer_watch(9).await;
    watch.send(Ok(WatchEvent::Changed(batch(10)))).unwrap();
    assert_eq!(
        stage.next().await,
        FeedEvent::Changed(batch(10)),
        "the list was the answer"
    );
}

#[tokio::test(start_paused = true)]
async fn changes_of_many_bytes_wait_at_store_and_not_here() {
    const MEBIBYTE: usize = 1 << 20;
    let large = |revision: i64, mebibytes: usize| {
        let value = vec![0; mebibytes * MEBIBYTE].into();
        let entry = Entry {
            key: "/".to_owned(),
            value,
            create_revision: 1,
            mod_revision: revision,
        };
        Batch {
            revision,
            changes: vec![Change::Put(entry)],
        }
    };
    let sizes = [5, 5, 5, 5, 40, 1, 1, 1, 1, 40];
    let (mut stage, watch) = Stage::watching().await;
    for (revision, mebibytes) in (6..).zip(sizes) {
        watch
            .send(Ok(WatchEvent::Changed(large(revision, mebibytes))))
            .unwrap();
    }
    // The bytes that wait before each is taken: never more than 16 MiB, except a single one.
    let waits = [3, 3, 2, 1, 1, 4, 3, 2, 1, 1];
    for ((revision, mebibytes), waiting) in (6..).zip(sizes).zip(waits) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(stage.events.len(), waiting, "before revision {revision}");
        assert_eq!(
            stage.next().await,
            FeedEvent::Changed(large(revision, mebibytes))
        );
    }
}

fn progress(revision: i64) -> WatchEvent {
    WatchEvent::Changed(Batch {
        revision,
        changes: Vec::new(),
    })
}

#[tokio::test(start_paused = true)]
async fn saved_state_is_gone_on_from_without_a_list() {
    let mut stage = Stage::with(Feed::start_saving);
    stage.handle.begin(saved());
    let bad = vec![Change::Put(entry("/bad", 4))];
    let watch = stage.answer_resume(Ok(bad.clone())).await;
    assert_eq!(stage.next().await, FeedEvent::Resumed { revision: 5 });
    let deviating = Batch {
        revision: 5,
        changes: bad,
    };
    assert_eq!(stage.next().await, FeedEvent::Changed(deviating));
    watch.send(Ok(progress(5))).unwrap();
    watch.send(Ok(progress(6))).unwrap();
    watch.send(Ok(WatchEvent::Changed(batch(7)))).unwrap();
    assert_eq!(stage.next().await, FeedEvent::Progress { revision: 6 });
    assert_eq!(stage.next().await, FeedEvent::Changed(batch(7)));
    // From now on as after a list.
    watch.send(Err(lost())).unwrap();
    assert_eq!(stage.next().await, down());
    stage.answer_watch(7).await;
    assert_eq!(stage.next().await, FeedEvent::Up);
}

#[tokio::test(start_paused = true)]
async fn saved_state_of_another_store_leads_to_a_list_alone() {
    let mut stage = Stage::with(Feed::start_saving);
    stage.handle.begin(saved());
    stage.answer_resume(Err(lost())).await;
    assert_eq!(stage.next().await, down(), "an outage ends nothing");
    let start = Instant::now();
    let other = StoreError::Replaced {
        revision: 5,
        key: "/a".to_owned(),
    };
    stage.answer_resume(Err(other)).await;
    stage.answer_pages(&[&[]], Ok(9)).await;
    assert!(start.elapsed() < LIST_SPREAD + Duration::from_secs(1));
    stage.expect_page(&[]).await;
    stage.expect_complete(9, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn start_with_nothing_saved_lists_at_once() {
    let mut waits = Vec::new();
    for start in [Some(SavedStart::Nothing), None] {
        let mut stage = Stage::with(Feed::start_saving);
        let begin = Instant::now();
        if let Some(start) = start {
            stage.handle.begin(start);
        }
        stage.answer_pages(&[], Ok(9)).await;
        waits.push(begin.elapsed());
    }
    assert_eq!(waits, [Duration::ZERO, SAVED_START_TIMEOUT]);
}

#[tokio::test(start_paused = true)]
async fn unusable_saved_states_of_many_are_listed_one_after_the_other() {
    let mut waits = Vec::new();
    for _ in 0..32 {
        let mut stage = Stage::with(Feed::start_saving);
        let begin = Instant::now();
        stage.handle.begin(SavedStart::Unusable);
        stage.answer_pages(&[], Ok(9)).await;
        waits.push(begin.elapsed());
    }
    let (first, last) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
    assert!(
        *last <= LIST_SPREAD && *last > *first + LIST_SPREAD / 2,
        "{waits:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn keys_read_again_come_at_the_watched_revision() {
    let (mut stage, watch) = Stage::watching().await;
    watch.send(Ok(WatchEvent::Changed(batch(6)))).unwrap();
    assert_eq!(stage.next().await, FeedEvent::Changed(batch(6)));
    stage.handle.request_reread(["/a".to_owned()].into());
    let again = Batch {
        revision: 6,
        changes: vec![Change::Put(entry("/a", 6))],
    };
    assert_eq!(stage.next().await, FeedEvent::Changed(again));
    watch.send(Ok(WatchEvent::Changed(batch(7)))).unwrap();
    assert_eq!(stage.next().await, FeedEvent::Changed(batch(7)));
}
