//! A watcher: its filter, and the bounded channel of its lines.

use axum::body::Bytes;
use contiv_node::flows::{FlowFilter, ServiceFlow};
use serde::Serialize;
use serde_json::json;
use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};

/// How many pieces wait for a slow reader. There are at most twenty a second.
const MAX_WAITING: usize = 64;

/// The lines of a watcher, in pieces.
pub(crate) type Lines = mpsc::Receiver<Bytes>;

/// The sending end.
#[derive(Debug)]
pub(super) struct Watcher {
    filter: FlowFilter,
    lines: mpsc::Sender<Bytes>,
    /// The next piece.
    piece: Vec<u8>,
    /// The connections in it.
    count: usize,
    /// The connections that found no room.
    lost: usize,
    /// Answered when the first event can come.
    reply: Option<oneshot::Sender<Result<(), String>>>,
}

impl Watcher {
    /// A watcher, and where its lines arrive.
    pub(super) fn new(
        filter: FlowFilter,
        reply: oneshot::Sender<Result<(), String>>,
    ) -> (Self, Lines) {
        let (lines, received) = mpsc::channel(MAX_WAITING);
        let watcher = Self {
            filter,
            lines,
            piece: Vec::new(),
            count: 0,
            lost: 0,
            reply: Some(reply),
        };
        (watcher, received)
    }

    /// Tells it that it watches, or why it cannot.
    pub(super) fn answer(&mut self, answer: Result<(), String>) {
        if let Some(reply) = self.reply.take() {
            // It may not wait any more.
            let _ = reply.send(answer);
        }
    }

    /// True if it has gone.
    pub(super) fn is_gone(&self) -> bool {
        self.lines.is_closed()
    }

    /// Adds a connection to the next piece, if it is asked for.
    pub(super) fn add(&mut self, flow: &ServiceFlow) {
        if self.filter.matches(flow) {
            write_line(&mut self.piece, flow);
            self.count += 1;
        }
    }

    /// Adds a notice to the next piece.
    pub(super) fn notify(&mut self, notice: &serde_json::Value) {
        write_line(&mut self.piece, notice);
    }

    /// Adds a space before the next line if there is nothing else, which JSON allows.
    pub(super) fn keep_alive(&mut self) {
        if self.piece.is_empty() {
            self.piece.push(b' ');
        }
    }

    /// Sends the piece, if there is room for it.
    pub(super) fn flush(&mut self) {
        if self.piece.is_empty() {
            return;
        }
        let permit = match self.lines.try_reserve() {
            Ok(permit) => permit,
            Err(TrySendError::Full(())) => {
                self.lost += std::mem::take(&mut self.count);
                self.piece.clear();
                return;
            }
            Err(TrySendError::Closed(())) => return,
        };
        self.count = 0;
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            let text = format!("read too slowly: {lost} connections before this line are missing");
            write_line(
                &mut self.piece,
                &json!({"event": "notice", "text": text, "not_read": lost}),
            );
        }
        permit.send(std::mem::take(&mut self.piece).into());
    }
}

/// Appends a line of JSON.
pub(super) fn write_line(lines: &mut Vec<u8>, value: &impl Serialize) {
    let start = lines.len();
    // Only a map with other keys than texts fails.
    if serde_json::to_writer(&mut *lines, value).is_err() {
        lines.truncate(start);
        return;
    }
    lines.push(b'\n');
}

#[cfg(test)]
mod tests {
    use contiv_model::{Frontend, Protocol, ServiceId};
    use contiv_node::flows::{FlowNews, FlowVerdict};
    use jiff::Timestamp;

    use super::*;

    fn flow(name: &str) -> ServiceFlow {
        ServiceFlow {
            event: FlowNews::New,
            at: Timestamp::UNIX_EPOCH,
            id: Some(1),
            service: ServiceId::new("shop", name),
            frontend: Frontend::NodePort {
                protocol: Protocol::Tcp,
                port: 30080,
            },
            client: ([10, 0, 0, 9], 4000).into(),
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

    #[test]
    fn slow_watcher_is_told_how_many_connections_it_missed() {
        let filter = FlowFilter {
            service: Some("web".into()),
            ..FlowFilter::default()
        };
        let (mut watcher, mut lines) = Watcher::new(filter, oneshot::channel().0);
        for _ in 0..MAX_WAITING + 3 {
            watcher.add(&flow("web"));
            watcher.add(&flow("api"));
            watcher.flush();
        }
        let mut pieces = 0;
        while let Ok(piece) = lines.try_recv() {
            let text = String::from_utf8(piece.to_vec()).unwrap();
            assert!(text.contains(r#""service":"shop/web""#) && text.lines().count() == 1);
            pieces += 1;
        }
        assert_eq!(pieces, MAX_WAITING);
        watcher.add(&flow("web"));
        watcher.flush();
        let piece = String::from_utf8(lines.try_recv().unwrap().to_vec()).unwrap();
        assert!(piece.ends_with("\"not_read\":3,\"text\":\"read too slowly: 3 connections before this line are missing\"}\n"), "{piece}");
        drop(lines);
        assert!(watcher.is_gone());
    }
}
