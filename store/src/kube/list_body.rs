//! The body of a list: decompressed and split into its items while it arrives.

use std::{
    io::{self, Write},
    mem,
    sync::Arc,
};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use http::{Response, header};
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::time::timeout;

use super::{
    failure::{ANSWER_TIMEOUT, Failure, chain, late, unavailable},
    items::ItemSplitter,
};

/// An answer that has begun.
pub(super) struct ListBody {
    endpoint: Arc<str>,
    chunks: BoxStream<'static, io::Result<Bytes>>,
    decoder: Decoder,
    splitter: ItemSplitter,
}

enum Decoder {
    Plain,
    /// The output is taken after each chunk.
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
}

impl ListBody {
    pub(super) fn new(answer: Response<Body>, endpoint: Arc<str>) -> Self {
        let encoding = answer.headers().get(header::CONTENT_ENCODING);
        let decoder = match encoding {
            Some(encoding) if encoding == "gzip" => Decoder::Gzip(Box::new(MultiGzDecoder::new(Vec::new()))),
            _ => Decoder::Plain,
        };
        let chunks = answer.into_body().into_data_stream().map_err(|error| io::Error::other(chain(&error)));
        Self { endpoint, chunks: chunks.boxed(), decoder, splitter: ItemSplitter::default() }
    }

    /// Waits for the next part of the answer, and calls `show` with each item that it completes. False at the end.
    pub(super) async fn next(
        &mut self,
        show: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<bool, Failure> {
        let chunk = timeout(ANSWER_TIMEOUT, self.chunks.next()).await.map_err(|_| late(&self.endpoint))?;
        let failed = |reason: String| unavailable(&self.endpoint, reason);
        let chunk = chunk.transpose().map_err(|error| failed(error.to_string()))?;
        let is_last = chunk.is_none();
        let decoded = self.decoder.decode(chunk).map_err(|error| failed(error.to_string()))?;
        self.splitter.feed(&decoded, show).map_err(failed)?;
        Ok(!is_last)
    }

    /// The list without its items, after the last part.
    pub(super) fn finish(self) -> Result<Vec<u8>, Failure> {
        let Self { endpoint, splitter, .. } = self;
        Ok(splitter.finish().map_err(|reason| unavailable(&endpoint, reason))?)
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
