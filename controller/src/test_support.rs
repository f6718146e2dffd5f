//! Helpers of the unit tests: objects that are texts.

use std::time::Duration;

use contiv_store::{Operation, Store};

use crate::{BoxError, Labels, ResourceType};
use contiv_store_testing::MemoryStore;

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Texts below `/<name>/`. Those that begin with `!` cannot be decoded.
pub(crate) fn texts(name: &str) -> ResourceType<String> {
    ResourceType::new(name, &format!("/{name}/"), |entry| {
        let text = String::from_utf8(entry.value.to_vec())?;
        if text.starts_with('!') {
            Err(BoxError::from(format!("{text} is no text")))
        } else {
            Ok(text)
        }
    })
}

/// The labels in a text such as `app=web,zone=a`.
pub(crate) fn labels(text: &str) -> Labels {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

pub(crate) async fn put(store: &MemoryStore, key: &str, value: &str) -> i64 {
    let value = value.to_owned().into();
    store
        .commit(vec![Operation::Put {
            key: key.to_owned(),
            value,
        }])
        .await
        .unwrap()
}

pub(crate) async fn delete(store: &MemoryStore, key: &str) -> i64 {
    store
        .commit(vec![Operation::Delete {
            key: key.to_owned(),
        }])
        .await
        .unwrap()
}
