//! A whole list, decoded on every processor there is, but for the parts that are decoded already.

use std::{hash::BuildHasher as _, mem};

use contiv_model::{Event, Object, Resync, parallel::in_shares, processor::StringInterner};
use contiv_store::{Entry, Snapshot};

use super::{BadValue, Outcome, decode};

/// How many entries are one piece of work, of which each thread gets several,
const ENTRIES_PER_PIECE: usize = 500;
/// and below how many pieces another thread costs more than it gains.
const PIECES_PER_THREAD: usize = 4;

/// What some entries come to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Decoded {
    objects: Vec<Object>,
    bad: Vec<BadValue>,
}

/// What has been decoded of a list before all of it was there.
#[derive(Debug, Default)]
pub(in crate::event_loop) struct Ahead {
    parts: Vec<Part>,
    /// Those that the objects share. Names that many objects hold would be in memory many times, and leave holes when they are
    /// shared later.
    pub(in crate::event_loop) names: StringInterner,
}

impl Ahead {
    /// Decodes these, which follow one another in the list.
    pub(in crate::event_loop) fn decode(&mut self, entries: &[Entry]) {
        self.parts.push(Part::decode(entries, &mut self.names));
    }

    #[cfg(test)]
    pub(in crate::event_loop) const fn parts(&self) -> usize {
        self.parts.len()
    }
}

/// What entries come to that follow one another in a list. Which they were is known by their digest: a second copy of all keys
/// would be a third of what a list takes up.
#[derive(Debug)]
struct Part {
    first: String,
    count: usize,
    digest: u64,
    decoded: Decoded,
}

impl Part {
    /// Decodes these. Objects share `names`.
    fn decode(entries: &[Entry], names: &mut StringInterner) -> Self {
        Self {
            first: entries.first().map(|entry| entry.key.clone()).unwrap_or_default(),
            count: entries.len(),
            digest: digest(entries),
            decoded: decode_all(entries, names),
        }
    }

    /// Where in a list its entries are, if they are there.
    fn place_in(&self, entries: &[Entry]) -> Option<usize> {
        let place = entries.binary_search_by(|entry| entry.key.cmp(&self.first)).ok()?;
        let same = entries.get(place..place + self.count)?;
        (digest(same) == self.digest).then_some(place)
    }
}

/// Of keys, values and revisions. Whoever can write what has the digest of something else can write that as well.
fn digest(entries: &[Entry]) -> u64 {
    foldhash::quality::FixedState::default().hash_one(entries)
}

/// Decodes everything there is, on every processor there is, but for what has been decoded `ahead`. All objects share the names
/// that are left there.
pub(in crate::event_loop) fn snapshot(snapshot: &Snapshot, ahead: &mut Ahead) -> (Resync, Vec<BadValue>) {
    let pieces = pieces(&snapshot.entries, mem::take(&mut ahead.parts));
    let open: Vec<&[Entry]> = pieces.iter().filter_map(Piece::open).collect();
    let decode_share = |share: &[&[Entry]]| {
        let mut names = StringInterner::default();
        share.iter().map(|entries| decode_all(entries, &mut names)).collect::<Vec<_>>()
    };
    let mut rest = in_shares(&open, PIECES_PER_THREAD, decode_share).into_iter().flatten();

    let (mut resync, mut bad_values) = (Resync::default(), Vec::new());
    resync.objects.reserve(snapshot.entries.len());
    for piece in pieces {
        let Decoded { objects, bad } = match piece {
            Piece::Done(decoded) => decoded,
            Piece::Open(_) => {
                let mut decoded = rest.next().unwrap_or_default();
                decoded.objects.iter_mut().for_each(|object| ahead.names.share(object));
                decoded
            }
        };
        resync.objects.extend(objects);
        bad_values.extend(bad);
    }
    let unused = bad_values.iter().filter(|bad| !bad.is_used);
    resync.undecodable = unused.filter_map(|bad| bad.object.clone()).collect();
    (resync, bad_values)
}

/// Entries that follow one another.
#[derive(Debug)]
enum Piece<'a> {
    Done(Decoded),
    Open(&'a [Entry]),
}

impl<'a> Piece<'a> {
    const fn open(&self) -> Option<&'a [Entry]> {
        match self {
            Self::Open(entries) => Some(entries),
            Self::Done(_) => None,
        }
    }
}

/// All entries in their order, which is that of their keys. What was decoded ahead counts where it is of the very same entries.
fn pieces<'a>(entries: &'a [Entry], ahead: Vec<Part>) -> Vec<Piece<'a>> {
    let place = |part: Part| Some((part.place_in(entries)?, part));
    let mut ahead: Vec<(usize, Part)> = ahead.into_iter().filter_map(place).collect();
    ahead.sort_unstable_by_key(|(place, _)| *place);
    let (mut pieces, mut next) = (Vec::new(), 0);
    let cut = |open: &'a [Entry]| open.chunks(ENTRIES_PER_PIECE).map(Piece::Open);
    for (place, part) in ahead {
        let Some(open) = entries.get(next..place) else { continue };
        pieces.extend(cut(open));
        next = place + part.count;
        pieces.push(Piece::Done(part.decoded));
    }
    pieces.extend(cut(entries.get(next..).unwrap_or_default()));
    pieces
}

/// The objects, and what is no good, or not all of it. Objects share `names`.
fn decode_all(entries: &[Entry], names: &mut StringInterner) -> Decoded {
    let mut decoded = Decoded { objects: Vec::with_capacity(entries.len()), bad: Vec::new() };
    for entry in entries {
        match decode(entry) {
            Outcome::Good(Event::Put(mut object), _, partly) => {
                names.share(&mut object);
                decoded.objects.push(object);
                decoded.bad.extend(partly.map(|bad| *bad));
            }
            Outcome::Good(..) | Outcome::Ignored => {}
            Outcome::Bad(bad) => decoded.bad.push(bad),
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use contiv_model::{ObjectKey, ServiceId};
    use contiv_proto::{Key, Kind};
    use proptest::prelude::*;

    use super::*;

    fn entry(name: &str, value: &str) -> Entry {
        let key = Key::new(Kind::Service, "default", name).unwrap().to_path();
        Entry { key, value: value.to_owned().into(), create_revision: 1, mod_revision: 1 }
    }

    fn of(entries: &[Entry]) -> Snapshot {
        Snapshot { entries: entries.to_vec(), ..Snapshot::default() }
    }

    #[test]
    fn a_list_is_decoded_in_order_whatever_its_size_and_what_is_bad_is_named() {
        let count = ENTRIES_PER_PIECE * PIECES_PER_THREAD * 3 + 7;
        let mut entries: Vec<Entry> =
            (0..count).map(|i| entry(&format!("s{i:05}"), r#"{"cluster_ip":"None"}"#)).collect();
        entries[count / 2] = entry("web", "{");
        entries.push(Entry { key: "/elsewhere".to_owned(), ..entry("x", "{}") });
        let (resync, bad) = snapshot(&of(&entries), &mut Ahead::default());
        assert_eq!(resync.objects.len(), count - 1);
        assert!(resync.objects.is_sorted_by_key(contiv_model::Object::key));
        let web = ObjectKey::Service(ServiceId::new("default", "web"));
        assert_eq!(resync.undecodable.into_iter().collect::<Vec<_>>(), [web]);
        assert_eq!(bad.len(), 1);
    }

    proptest! {
        #[test]
        fn whatever_was_decoded_ahead_a_list_comes_to_the_same(
            bad in prop::collection::vec(any::<bool>(), 0..60),
            cuts in prop::collection::vec((0usize..60, 1usize..20), 0..6),
            reverse in any::<bool>(),
        ) {
            let value = |bad: &bool| if *bad { "{" } else { r#"{"cluster_ip":"None"}"# };
            let entries: Vec<Entry> =
                bad.iter().enumerate().map(|(i, bad)| entry(&format!("s{i:03}"), value(bad))).collect();
            let parts = cuts.iter().filter_map(|(from, count)| entries.get(*from..)?.chunks(*count).next());
            let mut ahead = Ahead::default();
            parts.for_each(|entries| ahead.decode(entries));
            if reverse {
                ahead.parts.reverse();
            }
            prop_assert_eq!(snapshot(&of(&entries), &mut ahead), snapshot(&of(&entries), &mut Ahead::default()));
        }
    }

    #[test]
    fn what_was_decoded_of_other_values_does_not_count() {
        let entries = [entry("a", "{}"), entry("b", "{}"), entry("c", "{}")];
        let mut others = entries.clone();
        // As from a store that was replaced since: the same key at the same revision.
        others[1].value = "{".into();
        let missing = [entry("b2", "{")];
        let mut ahead = Ahead::default();
        for shown in [&others[..], &missing, &[]] {
            ahead.decode(shown);
        }
        assert_eq!(snapshot(&of(&entries), &mut ahead), snapshot(&of(&entries), &mut Ahead::default()));
    }
}
