//! What is sent to the collector of what the kernel told: bounded, and with what is to be known of it. Pure.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
};

use contiv_model::Protocol;
use contiv_node::{
    flows::{FlowList, ServiceFlow},
    plural::counted,
};
use contiv_renderer::packet_path::SampleRate;
use serde_json::{Value, json};

use super::collector::CollectorConnection;
use crate::flows::{Piece, add_notice};

/// How many records of connections a request has at most, each of about a kilobyte; of more it has a sample. There is at most one request
/// a second.
pub(super) const MAX_RECORDS: usize = 1_000;
/// How many connections to the collector are remembered. Their ends are told minutes later.
const MAX_REMEMBERED: usize = 1_024;

/// The connections of the next request.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) flows: Vec<ServiceFlow>,
    rate: SampleRate,
}

/// What is to be sent besides, until the collector has accepted it.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    own: OwnConnections,
    notices: Vec<Value>,
    /// The connections that found no room while the collector was slow.
    not_read: usize,
    /// The records that the collector may not have accepted.
    not_accepted: usize,
}

impl Outbox {
    /// Leaves out a connection to the collector from now on: each request would have another one.
    pub(super) fn leave_out(&mut self, connection: CollectorConnection) {
        self.own.add(connection);
    }

    /// Adds what is to be known of the connections from now on.
    pub(super) fn notify(&mut self, notice: Value) {
        let not_read = notice["not_read"].as_u64();
        match not_read.and_then(|count| usize::try_from(count).ok()) {
            Some(count) => self.not_read += count,
            None => add_notice(&mut self.notices, notice),
        }
    }

    /// The connections to send of what was told.
    pub(super) fn batch(&mut self, pieces: Vec<Piece>) -> Batch {
        let mut list = FlowList::with_limit(MAX_RECORDS);
        for Piece { flows, notices } in pieces {
            let others = flows.into_iter().filter(|flow| !self.own.has(flow));
            others.for_each(|flow| list.add(flow));
            for notice in notices {
                self.notify(notice);
            }
        }
        let (flows, rate) = list.finish();
        Batch { flows, rate }
    }

    /// What is to be known of a batch.
    pub(super) fn notices(&self, batch: &Batch) -> Vec<Value> {
        let mut notices = self.notices.clone();
        let one_in = batch.rate.one_in();
        if one_in > 1 {
            let text =
                format!("too many connections since the last request: one in {one_in} is sent");
            notices.push(json!({"text": text, "sent_one_in": one_in}));
        }
        if self.not_read > 0 {
            let missing = counted(self.not_read, "record");
            let text = format!("the collector was too slow: {missing} before this one are missing");
            notices.push(json!({"text": text, "not_read": self.not_read}));
        }
        if self.not_accepted > 0 {
            let missing = counted(self.not_accepted, "record");
            let text = format!("the collector may not have accepted {missing} before this one");
            notices.push(json!({"text": text, "not_accepted": self.not_accepted}));
        }
        notices
    }

    /// A batch was accepted with its notices, or may not have been.
    pub(super) fn on_sent(&mut self, batch: &Batch, is_accepted: bool) {
        if is_accepted {
            self.notices.clear();
            (self.not_read, self.not_accepted) = (0, 0);
        } else {
            self.not_accepted += batch.flows.len();
        }
    }

    /// How many records the collector may not have accepted since it accepted some.
    pub(super) const fn not_accepted(&self) -> usize {
        self.not_accepted
    }
}

/// The newest connections to the collector, by this program's end.
#[derive(Debug, Default)]
struct OwnConnections {
    collectors: BTreeMap<SocketAddr, SocketAddr>,
    order: VecDeque<SocketAddr>,
}

impl OwnConnections {
    fn add(&mut self, (own, collector): CollectorConnection) {
        if self.collectors.insert(own, collector).is_none() {
            self.order.push_back(own);
        }
        if self.order.len() > MAX_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.collectors.remove(&oldest);
        }
    }

    fn has(&self, flow: &ServiceFlow) -> bool {
        flow.protocol() == Protocol::Tcp
            && self.collectors.get(&flow.client) == Some(&flow.destination)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::test_flows::flow, *};

    fn piece(flows: Vec<ServiceFlow>, notices: Vec<Value>) -> Vec<Piece> {
        vec![Piece { flows, notices }]
    }

    #[test]
    fn connections_to_the_collector_are_left_out_and_no_others() {
        let mut outbox = Outbox::default();
        let own = flow(1);
        outbox.leave_out((own.client, own.destination));
        let other = ServiceFlow {
            destination: ([10, 96, 0, 1], 4318).into(),
            ..flow(1)
        };
        let batch = outbox.batch(piece(vec![own, other.clone(), flow(2)], Vec::new()));
        assert_eq!(batch.flows, [other, flow(2)]);
        let new = |port: usize| ([127, 0, 0, 1], u16::try_from(2 + port).unwrap()).into();
        (0..MAX_REMEMBERED).for_each(|it| outbox.leave_out((new(it), new(0))));
        let sizes = (outbox.own.collectors.len(), outbox.own.order.len());
        assert_eq!(sizes, (MAX_REMEMBERED, MAX_REMEMBERED));
        let batch = outbox.batch(piece(vec![flow(1)], Vec::new()));
        assert_eq!(batch.flows, [flow(1)], "it was forgotten");
    }

    #[test]
    fn many_connections_are_a_sample_and_say_so() {
        let mut outbox = Outbox::default();
        let flows: Vec<_> = (0..20_000).map(flow).collect();
        let batch = outbox.batch(piece(flows, Vec::new()));
        let count = batch.flows.len();
        assert!((1..=MAX_RECORDS).contains(&count), "{count}");
        let one_in = u64::from(batch.rate.one_in());
        assert!(one_in >= 20, "{one_in}");
        assert_eq!(outbox.notices(&batch)[0]["sent_one_in"], one_in);
        outbox.on_sent(&batch, false);
        let batch = outbox.batch(Vec::new());
        let notices = outbox.notices(&batch);
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert_eq!(notices[0]["not_accepted"], count);
    }

    #[test]
    fn notices_are_kept_until_the_collector_has_accepted_them() {
        let mut outbox = Outbox::default();
        for one_in in [2, 4] {
            let sample = json!({"event": "notice", "text": "a sample", "one_in": one_in});
            let missing = json!({"event": "notice", "text": "missing", "not_read": 5});
            let batch = outbox.batch(piece(vec![flow(1)], vec![sample, missing]));
            outbox.on_sent(&batch, false);
        }
        let batch = outbox.batch(Vec::new());
        let notices = outbox.notices(&batch);
        let [sample, not_read, not_accepted] = &notices[..] else {
            panic!("{notices:?}");
        };
        assert_eq!(
            (&sample["one_in"], &not_read["not_read"]),
            (&json!(4), &json!(10))
        );
        assert_eq!(
            not_accepted["text"],
            "the collector may not have accepted 2 records before this one"
        );
        outbox.on_sent(&batch, true);
        assert!(outbox.notices(&batch).is_empty());
    }
}
