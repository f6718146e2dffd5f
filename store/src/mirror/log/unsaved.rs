//! Reads the part of the log that is not in the mirror.

use std::{collections::BTreeSet, path::Path};

use super::{
    record::{self, Record},
    segment::{List, open, segments},
};
use crate::{Batch, Change, Entry, url::names_the_same_store};

/// Content to be saved in the mirror, in this order.
#[derive(Debug)]
pub(in crate::mirror) enum Unsaved {
    /// The changes of several records, up to this number.
    Changes {
        number: u64,
        revision: i64,
        changes: Vec<Change>,
        deviating: BTreeSet<String>,
    },
    /// A complete list.
    List {
        number: u64,
        revision: i64,
        keep: BTreeSet<String>,
        list: List,
    },
}

impl Unsaved {
    pub(super) const fn number(&self) -> u64 {
        match self {
            Self::Changes { number, .. } | Self::List { number, .. } => *number,
        }
    }
}

/// The content of a store's log after the record `saved`, from segments that begin before a number. Records after a gap are left
/// out, and so are truncated lists. If nothing is saved, it begins with a list.
pub(in crate::mirror) fn read(
    folder: &Path,
    source: &str,
    saved: Option<u64>,
    before: u64,
) -> impl Iterator<Item = Unsaved> {
    let segments = segments(folder)
        .into_iter()
        .take_while(move |(first, _)| *first < before);
    let mut newest = saved;
    segments.flat_map(move |(_, path)| {
        let mut unsaved = Vec::new();
        let mut reader = open(&path, |found| names_the_same_store(found, source));
        // A list counts only when its end is reached, so that a truncated one has no effect.
        let mut begun = None;
        while let Some(record) = reader.as_mut().and_then(record::read) {
            let list = begun.take();
            match record {
                Record::Changes {
                    number,
                    batch,
                    deviating,
                } if newest.is_some_and(|newest| number == newest + 1) => {
                    newest = Some(number);
                    push(&mut unsaved, number, batch, deviating);
                }
                Record::List {
                    number,
                    revision,
                    keep,
                } if newest.is_none_or(|newest| number > newest) => {
                    begun = Some((number, revision, keep));
                }
                Record::Entry(_) => begun = list,
                Record::ListEnd => {
                    if let Some((number, revision, keep)) = list
                        && let Ok(list) = List::open(&path)
                    {
                        newest = Some(number);
                        unsaved.push(Unsaved::List {
                            number,
                            revision,
                            keep,
                            list,
                        });
                    }
                }
                // A record that is saved, or one after a gap.
                _ => (),
            }
        }
        unsaved
    })
}

/// Adds changes to the previous ones, if those are no list.
fn push(unsaved: &mut Vec<Unsaved>, number: u64, batch: Batch, deviating: BTreeSet<String>) {
    let Batch { revision, changes } = batch;
    if let Some(Unsaved::Changes {
        number: last,
        revision: newest,
        changes: all,
        deviating: all_deviating,
    }) = unsaved.last_mut()
    {
        (*last, *newest) = (number, revision);
        for change in &changes {
            all_deviating.remove(change.key());
        }
        all.extend(changes);
        all_deviating.extend(deviating);
    } else {
        unsaved.push(Unsaved::Changes {
            number,
            revision,
            changes,
            deviating,
        });
    }
}

/// A piece of the records that are not saved.
pub(in crate::mirror) enum Piece<'a> {
    /// A list begins. The saved values of the keys in `keep` stay.
    ListBegin { keep: &'a BTreeSet<String> },
    /// A value of the list that began.
    Listed(&'a Entry),
    /// The list is complete: it replaces what is saved. A truncated list does not.
    ListEnd,
    /// A changed value.
    Changed(&'a Entry),
}

/// Calls `show` with the pieces of a store's records after this number, even where a later record changes or deletes a value.
pub(in crate::mirror) fn for_each_piece(
    folder: &Path,
    source: &str,
    saved: u64,
    mut show: impl FnMut(Piece<'_>),
) {
    for (_, path) in segments(folder) {
        let mut is_after = false;
        let mut reader = open(&path, |found| names_the_same_store(found, source));
        while let Some(record) = reader.as_mut().and_then(record::read) {
            match record {
                Record::Changes { number, batch, .. } if number > saved => {
                    for change in &batch.changes {
                        if let Change::Put(entry) = change {
                            show(Piece::Changed(entry));
                        }
                    }
                }
                Record::List { number, keep, .. } => {
                    is_after = number > saved;
                    if is_after {
                        show(Piece::ListBegin { keep: &keep });
                    }
                }
                Record::Entry(entry) if is_after => show(Piece::Listed(&entry)),
                Record::ListEnd if is_after => show(Piece::ListEnd),
                _ => (),
            }
        }
    }
}
