//! The body of a watch: split into its events while it arrives.

use std::{io, pin::Pin};

use contiv_proto::Kind;
use futures::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, TryStreamExt};
use http::Response;
use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{object::kind_of, protobuf};

/// The limit of one event.
const MAX_EVENT_SIZE: u32 = 16 << 20;
const IS_CUT: &str = "the connection ended within an event";

/// Why there is no next event.
#[derive(Debug)]
pub(super) enum WatchBodyError {
    /// The connection is lost.
    Lost(String),
    /// What has arrived is no event of this type.
    NoEvent(String),
}

impl WatchBodyError {
    fn lost(error: &io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

/// An answer that has begun.
pub(super) struct WatchBody {
    kind: Kind,
    reader: Pin<Box<dyn AsyncBufRead + Send>>,
    is_protobuf: bool,
}

/// An event of objects of one type.
#[derive(Debug)]
pub(super) struct WatchEvent {
    /// Such as `ADDED`.
    pub(super) event: String,
    /// The object in JSON.
    pub(super) object: String,
}

#[derive(Debug, Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    event: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl WatchBody {
    /// The answer to a watch of objects of `kind`.
    pub(super) fn new(answer: Response<Body>, kind: Kind) -> Self {
        let is_protobuf = protobuf::is_in(&answer);
        let reader = answer
            .into_body()
            .into_data_stream()
            .map_err(io::Error::other)
            .into_async_read();
        Self {
            kind,
            reader: Box::pin(reader),
            is_protobuf,
        }
    }

    /// The next event; none at the end.
    ///
    /// # Errors
    /// When the connection is lost, and when it is no event or too large.
    pub(super) async fn next(&mut self) -> Result<Option<WatchEvent>, WatchBodyError> {
        if self.is_protobuf {
            self.next_message().await
        } else {
            self.next_line().await
        }
    }

    /// An event is one line.
    async fn next_line(&mut self) -> Result<Option<WatchEvent>, WatchBodyError> {
        let mut line = Vec::new();
        let mut limited = (&mut self.reader).take(MAX_EVENT_SIZE.into());
        let size = limited
            .read_until(b'\n', &mut line)
            .await
            .map_err(|error| WatchBodyError::lost(&error))?;
        if size == 0 {
            return Ok(None);
        }
        if line.last() != Some(&b'\n') {
            return Err(if size as u64 == u64::from(MAX_EVENT_SIZE) {
                too_large()
            } else {
                WatchBodyError::Lost(IS_CUT.to_owned())
            });
        }
        let no_event = |reason: String| WatchBodyError::NoEvent(reason);
        let Line { event, object } =
            serde_json::from_slice(&line).map_err(|error| no_event(error.to_string()))?;
        if event != "ERROR" {
            let kind = kind_of(object.get()).map_err(no_event)?;
            protobuf::check_kind(self.kind, &kind).map_err(no_event)?;
        }
        Ok(Some(WatchEvent {
            event: event.to_owned(),
            object: object.get().to_owned(),
        }))
    }

    /// An event is a message, after its size.
    async fn next_message(&mut self) -> Result<Option<WatchEvent>, WatchBodyError> {
        if self
            .reader
            .fill_buf()
            .await
            .map_err(|error| WatchBodyError::lost(&error))?
            .is_empty()
        {
            return Ok(None);
        }
        let mut size = [0; 4];
        self.read_exact(&mut size).await?;
        let size = u32::from_be_bytes(size);
        if size > MAX_EVENT_SIZE {
            return Err(too_large());
        }
        let mut message = vec![0; size as usize];
        self.read_exact(&mut message).await?;
        let (event, object) =
            protobuf::event_to_json(self.kind, message.into()).map_err(WatchBodyError::NoEvent)?;
        Ok(Some(WatchEvent { event, object }))
    }

    async fn read_exact(&mut self, bytes: &mut [u8]) -> Result<(), WatchBodyError> {
        let read = self.reader.read_exact(bytes).await;
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => WatchBodyError::Lost(IS_CUT.to_owned()),
            _ => WatchBodyError::lost(&error),
        })
    }
}

fn too_large() -> WatchBodyError {
    WatchBodyError::NoEvent(format!("an event is larger than {MAX_EVENT_SIZE} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn event_of_another_type_is_no_event() {
        for (line, is_event) in [
            (r#"{"type":"ADDED","object":{"kind":"Pod"}}"#, true),
            (r#"{"type":"ADDED","object":{"kind":"Node"}}"#, false),
            (r#"{"type":"ADDED","object":{}}"#, false),
            (r#"{"type":"ERROR","object":{"kind":"Status"}}"#, true),
        ] {
            let answer = Response::new(Body::from(format!("{line}\n").into_bytes()));
            let event = WatchBody::new(answer, Kind::Pod).next().await;
            let is_refused = matches!(event, Err(WatchBodyError::NoEvent(_)));
            assert_eq!(is_refused, !is_event, "{line}: {event:?}");
        }
    }
}
