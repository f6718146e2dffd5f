//! The body of a list: decompressed and split into its items while it arrives, in JSON or protobuf.

use std::{
    io::{self, Write},
    mem, str,
    sync::Arc,
};

use bytes::Bytes;
use contiv_proto::Kind;
use flate2::write::MultiGzDecoder;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use http::{Response, header};
use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;
use tokio::time::timeout;

use super::{
    failure::{ANSWER_TIMEOUT, Failure, chain, timeout_error, unavailable},
    items::ItemSplitter,
    protobuf::{self, ListMetadata, ListSplitter, check_kind},
};

/// An answer that has begun.
pub(super) struct ListBody {
    endpoint: Arc<str>,
    kind: Kind,
    chunks: BoxStream<'static, io::Result<Bytes>>,
    decoder: Decoder,
    splitter: Splitter,
}

enum Splitter {
    Json(ItemSplitter),
    /// Of objects of this type.
    Protobuf(Kind, ListSplitter),
}

/// A list in JSON without its items.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Envelope {
    kind: String,
    metadata: ListMetadata,
    /// Of a `Status`.
    message: String,
}

enum Decoder {
    Plain,
    /// The output is taken after each chunk.
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
}

impl Envelope {
    /// The metadata of a list of this type. Anything else, such as a `Status`, would be a list without objects.
    fn into_metadata(self, kind: Kind) -> Result<ListMetadata, String> {
        let Self {
            kind: said,
            metadata,
            message,
        } = self;
        if let Err(problem) = check_kind(kind, said.strip_suffix("List").unwrap_or_default()) {
            let said = if said.is_empty() {
                "an answer without a kind"
            } else {
                &said
            };
            let problem = if message.is_empty() { problem } else { message };
            return Err(format!("the answer is {said}: {problem}"));
        }
        if metadata.resource_version.is_empty() {
            return Err("it has no resourceVersion".to_owned());
        }
        Ok(metadata)
    }
}

impl ListBody {
    /// The answer to a list of objects of `kind`.
    pub(super) fn new(answer: Response<Body>, kind: Kind, endpoint: Arc<str>) -> Self {
        let splitter = if protobuf::is_in(&answer) {
            Splitter::Protobuf(kind, ListSplitter::default())
        } else {
            Splitter::Json(ItemSplitter::default())
        };
        let encoding = answer.headers().get(header::CONTENT_ENCODING);
        let decoder = match encoding {
            Some(encoding) if encoding == "gzip" => {
                Decoder::Gzip(Box::new(MultiGzDecoder::new(Vec::new())))
            }
            _ => Decoder::Plain,
        };
        let chunks = answer
            .into_body()
            .into_data_stream()
            .map_err(|error| io::Error::other(chain(&error)));
        Self {
            endpoint,
            kind,
            chunks: chunks.boxed(),
            decoder,
            splitter,
        }
    }

    /// Waits for the next part of the answer, and calls `show` with each item that it completes, in JSON. False at the end.
    pub(super) async fn next(
        &mut self,
        mut show: impl FnMut(&str) -> Result<(), String>,
    ) -> Result<bool, Failure> {
        let chunk = timeout(ANSWER_TIMEOUT, self.chunks.next())
            .await
            .map_err(|_| timeout_error(&self.endpoint))?;
        let failed = |reason: String| unavailable(&self.endpoint, reason);
        let chunk = chunk
            .transpose()
            .map_err(|error| failed(error.to_string()))?;
        let is_last = chunk.is_none();
        let decoded = self
            .decoder
            .decode(chunk)
            .map_err(|error| failed(error.to_string()))?;
        let fed = match &mut self.splitter {
            Splitter::Json(splitter) => splitter.feed(&decoded, |item| {
                show(str::from_utf8(item).map_err(|error| error.to_string())?)
            }),
            Splitter::Protobuf(kind, splitter) => {
                splitter.feed(&decoded, |item| show(&protobuf::item_to_json(*kind, item)?))
            }
        };
        fed.map_err(failed)?;
        Ok(!is_last)
    }

    /// The list's metadata, after the last part.
    pub(super) fn finish(self) -> Result<ListMetadata, Failure> {
        let Self {
            endpoint,
            kind,
            splitter,
            ..
        } = self;
        let envelope = match splitter {
            Splitter::Json(splitter) => splitter.finish().and_then(|envelope| {
                serde_json::from_slice(&envelope).map_err(|error| error.to_string())
            }),
            Splitter::Protobuf(_, splitter) => splitter.finish().map(|(kind, metadata)| Envelope {
                kind,
                metadata,
                ..Envelope::default()
            }),
        };
        let metadata = envelope.and_then(|envelope| envelope.into_metadata(kind));
        Ok(metadata
            .map_err(|reason| unavailable(&endpoint, format!("a list of {kind}: {reason}")))?)
    }
}

impl Decoder {
    /// What this chunk adds; without one, what was held back until the end.
    fn decode(&mut self, chunk: Option<Bytes>) -> io::Result<Bytes> {
        match (self, chunk) {
            (Self::Plain, chunk) => Ok(chunk.unwrap_or_default()),
            (Self::Gzip(decoder), chunk) => {
                match chunk {
                    Some(chunk) => decoder.write_all(&chunk)?,
                    None => decoder.try_finish()?,
                }
                Ok(mem::take(decoder.get_mut()).into())
            }
        }
    }
}
