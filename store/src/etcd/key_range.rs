//! The ranges of keys that are read.

use std::collections::BTreeSet;

use etcd_client::proto::PbEvent;

/// Some keys, of those below a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySelection {
    /// Those with a prefix.
    Prefix(String),
    /// One key.
    Key(String),
}

/// A range of keys as in etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyRange {
    pub(super) from: Vec<u8>,
    /// The first key after it. A zero byte means "no end".
    pub(super) end: Vec<u8>,
}

impl KeyRange {
    fn of_prefix(prefix: &str) -> Self {
        Self {
            from: first_key(prefix),
            end: prefix_end(prefix),
        }
    }

    fn of_key(key: &str) -> Self {
        Self {
            from: key.into(),
            end: [key.as_bytes(), &[0]].concat(),
        }
    }

    fn has(&self, key: &[u8]) -> bool {
        *self.from <= *key && (self.end == [0] || *key < *self.end)
    }

    fn single_key(&self) -> Option<&str> {
        let is_single = self.end.strip_suffix(&[0]) == Some(&self.from);
        let key = std::str::from_utf8(&self.from).ok();
        key.filter(|_| is_single)
    }

    /// Splits it at some keys, in order.
    pub(super) fn split(&self, cuts: &[Vec<u8>]) -> Vec<Self> {
        let is_within = |cut: &&Vec<u8>| **cut > self.from && (self.end == [0] || **cut < self.end);
        let cuts: BTreeSet<&Vec<u8>> = cuts.iter().filter(is_within).collect();
        let ends = cuts.iter().copied().chain([&self.end]);
        let starts = std::iter::once(&self.from).chain(cuts.iter().copied());
        starts
            .zip(ends)
            .map(|(from, end)| Self {
                from: from.clone(),
                end: end.clone(),
            })
            .collect()
    }
}

/// What a reader reads: all keys below a prefix, or some ranges of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyRanges {
    pub(super) prefix: String,
    /// At least one. They do not overlap.
    pub(super) ranges: Vec<KeyRange>,
}

impl KeyRanges {
    /// All keys below a prefix.
    pub(super) fn below(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            ranges: vec![KeyRange::of_prefix(prefix)],
        }
    }

    /// Whether this is a change of one of the keys.
    pub(super) fn contain(&self, event: &PbEvent) -> bool {
        let mut ranges = self.ranges.iter();
        let key = event.kv.as_ref().map(|pair| &pair.key);
        key.is_some_and(|key| ranges.any(|range| range.has(key)))
    }

    /// The keys that are selected one by one.
    pub(super) fn single_keys(&self) -> BTreeSet<String> {
        let ranges = self.ranges.iter();
        let keys = ranges.filter_map(|range| range.single_key().map(str::to_owned));
        keys.collect()
    }

    /// Some keys below a prefix.
    pub(super) fn selected(prefix: &str, keys: impl IntoIterator<Item = KeySelection>) -> Self {
        let range = |selection| match selection {
            KeySelection::Prefix(prefix) => KeyRange::of_prefix(&prefix),
            KeySelection::Key(key) => KeyRange::of_key(&key),
        };
        Self {
            prefix: prefix.to_owned(),
            ranges: keys.into_iter().map(range).collect(),
        }
    }
}

/// The first possible key with `prefix`. etcd takes an empty key as none.
fn first_key(prefix: &str) -> Vec<u8> {
    if prefix.is_empty() {
        vec![0]
    } else {
        prefix.as_bytes().to_vec()
    }
}

/// The first key after all keys with `prefix`. etcd takes a zero byte as "no end".
fn prefix_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_split_where_types_begin_without_gaps() {
        let range = |from: &str, end: &str| KeyRange {
            from: from.into(),
            end: end.into(),
        };
        let cuts = ["/a/pod/", "/a/node/", "/b/", "/a/endpoints/"].map(Vec::from);
        let expected = [
            range("/a/endpoints/x", "/a/node/"),
            range("/a/node/", "/a/pod/"),
            range("/a/pod/", "/a0"),
        ];
        assert_eq!(range("/a/endpoints/x", "/a0").split(&cuts), expected);
        let no_end = KeyRange {
            from: b"/a/pod/x".to_vec(),
            end: vec![0],
        };
        let [first, last] = &no_end.split(&cuts)[..] else {
            panic!()
        };
        assert_eq!(
            (&*first.end, &*last.from, &*last.end),
            (&b"/b/"[..], &b"/b/"[..], &[0][..])
        );
        assert_eq!(range("/z", "/z0").split(&cuts), [range("/z", "/z0")]);
    }

    #[test]
    fn prefix_ends_before_first_key_without_it() {
        assert_eq!(prefix_end("/a/"), b"/a0");
        assert_eq!(prefix_end(""), [0]);
    }
}
