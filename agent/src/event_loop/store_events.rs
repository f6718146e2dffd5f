//! What the loop does with what the store says, and with the addresses that this node's interfaces have.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use contiv_model::{ChangeSet, Event, ObjectKey, object::ObjectKind};
use contiv_store::{Batch, Delivery, Entry, FeedEvent, Problem, Snapshot};
use jiff::Timestamp;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    EventLoop, StoreDown,
    guard::Judgement,
    history::{Covers, Moment},
    intake::{self, Verdict},
};

/// How many objects the description of an event names.
const NAMED: usize = 5;

/// How many bytes of a list stay in memory until renderers have what they need. Fewer in tests, where each byte takes long.
pub(super) const KEPT_BYTES: usize = if cfg!(test) { 1 << 20 } else { 64 << 20 };

/// What cannot be read: the only one with what is wrong, of several the first by where they are.
fn describe_problems(problems: &[Problem]) -> String {
    match problems {
        [] => "every manifest and object can be read".to_owned(),
        [only] => format!("cannot be read: {only}"),
        all => {
            let mut names: Vec<String> = all.iter().map(name).collect();
            names.dedup();
            let more = match names.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let first = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
            format!("{} problems with manifests or objects: {first}{more}", all.len())
        }
    }
}

/// Where a problem is, and with which object if that is known.
fn name(problem: &Problem) -> String {
    match &problem.object {
        Some(object) => format!("{object} in {}", problem.source),
        None => problem.source.clone(),
    }
}

impl EventLoop {
    pub(super) async fn take_in(&mut self, Delivery { event, received }: Delivery) {
        match event {
            FeedEvent::Snapshot(snapshot) => self.take_in_snapshot(snapshot, received).await,
            FeedEvent::Changed(batch) => self.take_in_changes(batch, received).await,
            FeedEvent::Problems(problems) => {
                let placed: Vec<Problem> =
                    problems.iter().map(|problem| self.quarantine.placed(problem)).collect();
                let description = describe_problems(&placed);
                self.quarantine.replace_problems(problems, Timestamp::now());
                self.record("problems", description, None, Vec::new());
            }
            FeedEvent::Down { reason } => {
                self.record("store-down", reason.clone(), None, Vec::new());
                // Of a list that did not come to its end.
                drop(self.ahead.take().await);
                // An outage has several causes at times.
                let first = self.store.down.take();
                let since = first.as_ref().map_or_else(Timestamp::now, |first| first.since);
                self.store.down = Some(StoreDown { since, reason });
                if first.is_none() {
                    // Why it is down has been logged by the feed.
                    info!("the dataplane stays as it is while the store is down");
                }
                if first.is_none() && !self.store.is_synced {
                    self.store.awaited_until = None;
                    self.mirror.load();
                }
            }
            FeedEvent::Replaced { reason } => {
                self.record("store-replaced", reason, None, Vec::new());
            }
            FeedEvent::Up => {
                self.report_store_up();
                self.record("store-up", "nothing was missed".to_owned(), None, Vec::new());
            }
        }
    }

    async fn take_in_snapshot(&mut self, snapshot: Snapshot, received: Instant) {
        let moment = Moment::received(received);
        self.report_store_up();
        self.store.revision = snapshot.revision;
        self.store.is_of_mirror = false;
        let mut ahead = self.ahead.take().await;
        let (mut resync, bad) = intake::snapshot(&snapshot, &mut ahead);
        // What was recalled and what the list changes of it are one change: from nothing to the state after the list.
        let mut changes =
            if self.store.is_synced { ChangeSet::default() } else { self.remember(&snapshot, &bad).await };
        let judgement = self.guard.judge_list(&self.processor, &mut resync);
        self.own_node.keep_in_list(&self.processor, &mut resync);
        let Snapshot { revision, entries, problems } = snapshot;
        self.report_held(&judgement);
        let mut bad_keys: BTreeSet<String> =
            bad.iter().filter(|bad| !bad.is_used).map(|bad| bad.key.clone()).collect();
        // What was saved of it stays, even where that could not be recalled.
        if !self.own_node.is_listed(&entries) {
            bad_keys.insert(self.own_node.path().to_owned());
        }
        // Nobody else needs it now. To save it keeps another processor busy for a while: so that is done last, unless it is large.
        let is_large = entries.iter().map(Entry::size).sum::<usize>() > KEPT_BYTES;
        let mut save = (judgement == Judgement::Pass).then_some((entries, bad_keys));
        if is_large && let Some((entries, bad_keys)) = save.take() {
            self.mirror.replace(revision, entries, bad_keys);
        }
        let objects = resync.objects.len();
        changes.merge(self.processor.resync_sharing(resync, ahead.names));
        self.health.tell_changes(&changes);
        self.quarantine.replace_values(bad, moment.start);
        self.quarantine.replace_problems(problems, moment.start);

        let is_first = !std::mem::replace(&mut self.store.is_synced, true);
        self.store.awaited_until = None;
        if is_first {
            self.begin_handover();
        } else {
            self.handover.take(&mut changes, self.history.next());
        }
        let unreadable = self.quarantine.len();
        let description = format!("{objects} objects, {unreadable} that cannot be used");
        let renderers = if is_first || !changes.is_empty() { self.renderers.names() } else { Vec::new() };
        let duration = moment.since.elapsed();
        let event = self.record_timed("snapshot", description, Some(&changes), renderers, moment, duration);
        if is_first {
            info!(
                objects,
                unreadable,
                services = self.processor.count(ObjectKind::Service),
                revision = self.store.revision,
                duration = ?moment.since.elapsed(),
                "first snapshot of the store"
            );
            self.renderers.need_resync(event);
        } else if !changes.is_empty() {
            self.renderers.add_changes(&Arc::new(changes), Covers::one_at(event, moment));
        }
        self.dispatch();
        if let Some((entries, bad_keys)) = save {
            self.mirror.replace(revision, entries, bad_keys);
        }
    }

    async fn take_in_changes(&mut self, batch: Batch, received: Instant) {
        let mut moment = Moment::received(received);
        self.store.revision = batch.revision;
        let mut intake = intake::changes(&batch.changes, self.started_at);
        moment.triggered = intake.triggered;
        let judgement = self.guard.judge_changes(&self.processor, &mut intake.events);
        self.report_held(&judgement);
        let bad = intake.verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Bad(_))).count();
        let named = named(&intake.events);
        let more = intake.events.len() - named.len();
        self.own_node.keep_in_changes(&self.processor, &mut intake.events);
        let changes = self.processor.apply(intake.events);
        self.hand_out("change", || describe(&named, more, bad), changes, moment).await;
        let kept = self.own_node.path();
        self.mirror.apply(batch, &intake.verdicts, judgement == Judgement::Pass, kept);
        self.quarantine.judge(intake.verdicts, moment.start);
    }

    /// Before the first snapshot they are only remembered: nothing is rendered from half a cache.
    pub(super) async fn take_in_addresses(&mut self, addresses: BTreeSet<IpAddr>) {
        let moment = Moment::now();
        let description = format!("the interfaces of this node have {} addresses now", addresses.len());
        let changes = self.processor.apply([Event::LocalAddresses(addresses)]);
        if self.store.is_synced {
            self.hand_out("addresses", || description, changes, moment).await;
        } else {
            self.health.tell_changes(&changes);
            self.record_timed("addresses", description, None, Vec::new(), moment, moment.since.elapsed());
        }
    }

    /// Renderers first: whatever else is to be done of a change, no packet waits for it. Returns the number of the event.
    pub(super) async fn hand_out(
        &mut self,
        kind: &'static str,
        describe: impl FnOnce() -> String + Send,
        mut changes: ChangeSet,
        moment: Moment,
    ) -> u64 {
        let event = self.history.next();
        self.handover.take(&mut changes, event);
        let changes = Arc::new(changes);
        let duration = moment.since.elapsed();
        let mut renderers = Vec::new();
        if !changes.is_empty() {
            self.renderers.add_changes(&changes, Covers::one_at(event, moment));
            self.dispatch();
            self.give_way().await;
            renderers = self.renderers.names();
        }
        self.record_timed(kind, describe(), Some(&changes), renderers, moment, duration);
        self.health.tell_changes(&changes);
        event
    }

    fn report_held(&mut self, judgement: &Judgement) {
        let Some(held) = self.guard.held().filter(|_| *judgement == Judgement::HeldNow) else { return };
        let description =
            format!("{} objects are gone from the store at once: they stay in force", held.objects);
        warn!(
            objects = held.objects,
            until = %held.until,
            "too many objects are gone from the store at once: they stay in force; confirm with `contiv confirm-deletions`"
        );
        self.record("held", description, None, Vec::new());
    }

    fn report_store_up(&mut self) {
        if let Some(down) = self.store.down.take() {
            info!(since = %down.since, "the store is followed again");
        }
    }
}

/// The objects that a description names: whether each is deleted.
fn named(events: &[Event]) -> Vec<(ObjectKey, bool)> {
    let name = |event: &Event| match event {
        Event::Put(object) => Some((object.key(), false)),
        Event::Delete(key) => Some((key.clone(), true)),
        Event::AddPod { .. } | Event::DeletePod(_) | Event::RevertAddPod(_) | Event::LocalAddresses(_) => {
            None
        }
    };
    events.iter().filter_map(name).take(NAMED).collect()
}

fn describe(named: &[(ObjectKey, bool)], more: usize, bad: usize) -> String {
    let name = |(key, is_deleted): &(ObjectKey, bool)| {
        if *is_deleted { format!("{key} deleted") } else { key.to_string() }
    };
    let mut parts: Vec<String> = named.iter().map(name).collect();
    if more > 0 {
        parts.push(format!("{more} more"));
    }
    if bad > 0 {
        parts.push(format!("{bad} that cannot be used"));
    }
    if parts.is_empty() { "nothing that matters".to_owned() } else { parts.join(", ") }
}
