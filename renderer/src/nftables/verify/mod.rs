//! Reads the whole table back, and compares it with a rendering from nothing.
//!
//! ```text
//! snapshot ─ desired ─►┐
//!                     ├─ compare ─► drift
//! kernel ─── reader ─►┘
//! ```
//!
//! The reader decodes elements by the types that the kernel keeps, and shares no code with the encoder. Rules are compared
//! byte by byte with what the layout says.

mod compare;
mod datum;
mod desired;
mod reader;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use contiv_model::Snapshot;

use self::{
    desired::DesiredTable,
    reader::{KernelSet, KernelTable},
};
use super::{
    explain::inspect,
    kernel::read::ExistingTable,
    layout::{DemandChain, TABLE},
    netlink::{NetlinkError, Socket, constants},
};
use crate::{
    RenderError,
    kernel::Kernel,
    linux::Linux,
    table_listing::{ListedChain, TableListing},
    verify::{Deviation, Drift, Verification, Verifier},
};

/// Compares the kernel's table with what services require. Has its own socket.
pub struct TableVerifier {
    kernel: Arc<dyn Kernel>,
    socket: Option<Socket>,
    progress: Option<Box<Progress>>,
}

/// Receives the number of elements read so far, and the approximate total.
type Progress = dyn FnMut(usize, usize) + Send;

impl fmt::Debug for TableVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableVerifier")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

impl TableVerifier {
    /// A verifier that opens its socket at the first call.
    pub fn new() -> Self {
        Self::on(Linux::shared())
    }

    /// A verifier of this kernel.
    pub fn on(kernel: Arc<dyn Kernel>) -> Self {
        Self {
            kernel,
            socket: None,
            progress: None,
        }
    }

    /// Adds a report of its progress.
    #[must_use]
    pub fn with_progress(self, progress: Box<dyn FnMut(usize, usize) + Send>) -> Self {
        Self {
            progress: Some(progress),
            ..self
        }
    }

    /// All elements of the kernel in nft's format, by the name of their set. None if there is no table.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn elements(&mut self) -> Result<Option<BTreeMap<String, Vec<String>>>, RenderError> {
        let table = self
            .read(0)
            .map_err(|error| error.with_advice("read the table"))?;
        Ok(table.map(|table| {
            table
                .sets
                .into_iter()
                .map(|(name, set)| (name, lines(set)))
                .collect()
        }))
    }

    /// The content of the kernel's table. None if there is no table.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn listing(&mut self) -> Result<Option<TableListing>, RenderError> {
        self.try_listing()
            .map_err(|error| error.with_advice("read the table"))
    }

    fn try_listing(&mut self) -> Result<Option<TableListing>, NetlinkError> {
        let Some(table) = self.read(0)? else {
            return Ok(None);
        };
        let rules = inspect::rules::read(self.socket()?)?;
        let chain = |(name, hook): (String, String)| {
            let rules = rules.count(&name);
            (name, ListedChain { hook, rules })
        };
        let set = |(name, set): (String, KernelSet)| {
            let kind = if set.declaration[0] & constants::set::FLAG_MAP == 0 {
                "set"
            } else {
                "map"
            };
            (format!("{kind} {name}"), lines(set).into_iter().collect())
        };
        Ok(Some(TableListing {
            chains: table.chains.into_iter().map(chain).collect(),
            sets: table.sets.into_iter().map(set).collect(),
            others: BTreeSet::new(),
        }))
    }

    fn socket(&mut self) -> Result<&mut Socket, NetlinkError> {
        match self.socket.take() {
            Some(socket) => Ok(self.socket.insert(socket)),
            None => Ok(self.socket.insert(Socket::open(&self.kernel)?)),
        }
    }

    fn read(&mut self, expected: usize) -> Result<Option<KernelTable>, NetlinkError> {
        let mut progress = self.progress.take();
        let mut tell = |count| {
            if let Some(progress) = &mut progress {
                progress(count, expected);
            }
        };
        let read = self
            .socket()
            .and_then(|socket| reader::read(socket, TABLE, &mut tell));
        self.progress = progress;
        read
    }

    fn try_verify(&mut self, snapshot: &Snapshot) -> Result<Verification, NetlinkError> {
        let desired = DesiredTable::new(snapshot);
        let Some(found) = self.read(desired.count())? else {
            let (place, element) = ("tables".to_owned(), format!("inet {TABLE}"));
            let drift = Drift {
                service: None,
                place,
                element,
                deviation: Deviation::Missing,
            };
            return Ok(Verification {
                checked: 1,
                drift: [drift].into(),
            });
        };
        let mut verification = compare::compare(&desired, &found);
        let rules = inspect::rules::read(self.socket()?)?;
        // A missing chain has no rules; and the rules of an unused one must be right too, except for an empty one that a resync
        // could not remove: nothing leads to it, and it is filled before anything does.
        let is_left_over = |name: &&String| {
            !desired.chains.contains_key(*name) && !rules.has_any(name) && !found.leads_to(name)
        };
        let names = found.chains.keys().filter(|name| !is_left_over(name));
        let on_demand = names
            .filter_map(|name| DemandChain::by_name(name))
            .collect();
        let existing = ExistingTable {
            on_demand,
            ..ExistingTable::default()
        };
        for wrong in inspect::rules::compare(&rules, &existing, desired.pod_ranges) {
            if found.chains.contains_key(&wrong.chain) {
                let place = format!("chain {}", wrong.chain);
                let element = wrong
                    .number
                    .map_or_else(String::new, |number| format!("rule {number}"));
                let deviation = Deviation::Different(wrong.detail);
                verification.drift.insert(Drift {
                    service: None,
                    place,
                    element,
                    deviation,
                });
            }
        }
        verification.checked += rules.len();
        Ok(verification)
    }
}

impl Default for TableVerifier {
    fn default() -> Self {
        Self::new()
    }
}

impl Verifier for TableVerifier {
    fn verify(&mut self, snapshot: &Snapshot) -> Result<Verification, RenderError> {
        let result = self.try_verify(snapshot);
        if result.is_err() {
            // Unread answers must not be taken for those of the next request.
            self.socket = None;
        }
        result.map_err(|error| error.with_advice("verify the table"))
    }
}

/// The reader's form of an element of one of our sets.
#[cfg(any(test, fuzzing))]
pub(super) fn read_element(
    set: super::layout::Set,
    element: super::netlink::Attributes<'_>,
) -> Vec<String> {
    use super::netlink::constants::{data, elem};

    let ours = set.declaration();
    let (data_type, data_len) = ours.data.unwrap_or_default();
    let declaration = [ours.flags, ours.key_type, ours.key_len, data_type, data_len];
    let mut read = KernelSet {
        declaration,
        ..KernelSet::default()
    };
    if let Some(first) = element
        .nested(elem::KEY)
        .and_then(|key| key.get(data::VALUE))
    {
        read.insert_element(first, element);
    }
    lines(read)
}

fn lines(set: KernelSet) -> Vec<String> {
    let line = |key: &str, slot: Option<u32>, value: &str| {
        let slot = slot.map(|slot| format!(" . {slot}")).unwrap_or_default();
        let value = if value.is_empty() {
            String::new()
        } else {
            format!(" : {value}")
        };
        format!("{key}{slot}{value}")
    };
    let of_key = |(key, entries): (String, std::collections::BTreeSet<reader::StoredEntry>)| {
        entries
            .into_iter()
            .map(move |(slot, value)| line(&key, slot, &value))
            .collect::<Vec<_>>()
    };
    set.elements.into_iter().flat_map(of_key).collect()
}
