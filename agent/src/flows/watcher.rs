//! A watcher: its filter, and the bounded channel of what it is told.

use contiv_node::flows::{FlowFilter, ServiceFlow};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};

/// How many pieces wait for a slow reader. There are at most twenty a second.
const MAX_WAITING: usize = 64;

/// What a watcher is told at a time. An empty one only shows that the watch goes on.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    pub(crate) flows: Vec<ServiceFlow>,
    /// What is to be known of the connections: that they are a sample, or that some are missing. With a `text`.
    pub(crate) notices: Vec<Value>,
}

impl Piece {
    /// Lines of JSON.
    pub(crate) fn to_lines(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        self.flows.iter().for_each(|it| write_line(&mut lines, it));
        let notices = self.notices.iter();
        notices.for_each(|it| write_line(&mut lines, it));
        lines
    }

    /// True if nothing is told.
    pub(crate) const fn is_empty(&self) -> bool {
        self.flows.is_empty() && self.notices.is_empty()
    }
}

/// What a watcher is told.
pub(crate) type Pieces = mpsc::Receiver<Piece>;

/// The sending end.
#[derive(Debug)]
pub(super) struct Watcher {
    filter: FlowFilter,
    pieces: mpsc::Sender<Piece>,
    next: Piece,
    /// The next piece is sent also if it is empty.
    is_due: bool,
    /// The connections that found no room.
    lost: usize,
    /// Answered when the first event can come.
    reply: Option<oneshot::Sender<Result<(), String>>>,
}

impl Watcher {
    /// A watcher, and where its pieces arrive.
    pub(super) fn new(
        filter: FlowFilter,
        reply: oneshot::Sender<Result<(), String>>,
    ) -> (Self, Pieces) {
        let (pieces, received) = mpsc::channel(MAX_WAITING);
        let watcher = Self {
            filter,
            pieces,
            next: Piece::default(),
            is_due: false,
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
        self.pieces.is_closed()
    }

    /// Adds a connection to the next piece, if it is asked for.
    pub(super) fn add(&mut self, flow: &ServiceFlow) {
        if self.filter.matches(flow) {
            self.next.flows.push(flow.clone());
        }
    }

    /// Adds a notice to the next piece.
    pub(super) fn notify(&mut self, notice: &Value) {
        add_notice(&mut self.next.notices, notice.clone());
    }

    /// Has an empty piece sent if there is nothing else.
    pub(super) const fn keep_alive(&mut self) {
        self.is_due = true;
    }

    /// Sends the next piece, if there is room for it.
    pub(super) fn flush(&mut self) {
        if !std::mem::take(&mut self.is_due) && self.next.is_empty() {
            return;
        }
        let mut piece = std::mem::take(&mut self.next);
        let permit = match self.pieces.try_reserve() {
            Ok(permit) => permit,
            Err(TrySendError::Full(())) => {
                self.lost += piece.flows.len();
                // Without them what comes later would look complete.
                self.next.notices = piece.notices;
                return;
            }
            Err(TrySendError::Closed(())) => return,
        };
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            let text = format!("read too slowly: {lost} connections before this line are missing");
            let notice = json!({"event": "notice", "text": text, "not_read": lost});
            piece.notices.push(notice);
        }
        permit.send(piece);
    }
}

/// Adds a notice in the place of one of its kind, which has the same keys: so there are only as many as kinds.
pub(crate) fn add_notice(notices: &mut Vec<Value>, notice: Value) {
    let has_same_keys = |known: &Value| match (known.as_object(), notice.as_object()) {
        (Some(known), Some(new)) => known.keys().eq(new.keys()),
        _ => false,
    };
    notices.retain(|known| !has_same_keys(known));
    notices.push(notice);
}

/// Appends a line of JSON.
fn write_line(lines: &mut Vec<u8>, value: &impl Serialize) {
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
        let (mut watcher, mut pieces) = Watcher::new(filter, oneshot::channel().0);
        for _ in 0..MAX_WAITING + 3 {
            watcher.add(&flow("web"));
            watcher.add(&flow("api"));
            watcher.flush();
        }
        let mut count = 0;
        let text = |piece: Piece| String::from_utf8(piece.to_lines()).unwrap();
        while let Ok(piece) = pieces.try_recv() {
            let text = text(piece);
            assert!(text.contains(r#""service":"shop/web""#) && text.lines().count() == 1);
            count += 1;
        }
        assert_eq!(count, MAX_WAITING);
        watcher.add(&flow("web"));
        watcher.flush();
        let lines = text(pieces.try_recv().unwrap());
        assert!(lines.ends_with("\"not_read\":3,\"text\":\"read too slowly: 3 connections before this line are missing\"}\n"), "{lines}");
        watcher.flush();
        assert!(pieces.try_recv().is_err(), "there is nothing to tell");
        watcher.keep_alive();
        watcher.flush();
        assert_eq!(text(pieces.try_recv().unwrap()), "");
        drop(pieces);
        assert!(watcher.is_gone());
    }

    #[test]
    fn notices_wait_while_the_channel_is_full_the_last_of_each_kind() {
        let (mut watcher, mut pieces) = Watcher::new(FlowFilter::default(), oneshot::channel().0);
        for _ in 0..MAX_WAITING {
            watcher.add(&flow("web"));
            watcher.flush();
        }
        for one_in in [2, 4] {
            watcher
                .notify(&json!({"event": "notice", "text": one_in.to_string(), "one_in": one_in}));
            watcher.flush();
        }
        watcher.notify(&json!({"event": "notice", "text": "late", "ends_at_once": false}));
        watcher.flush();
        while let Ok(piece) = pieces.try_recv() {
            assert!(piece.notices.is_empty(), "{piece:?}");
        }
        watcher.flush();
        let notices = pieces.try_recv().unwrap().notices.into_iter();
        let texts: Vec<Value> = notices.map(|mut notice| notice["text"].take()).collect();
        assert_eq!(texts, ["4", "late"]);
        watcher.flush();
        assert!(pieces.try_recv().is_err(), "each is told once");
    }
}
