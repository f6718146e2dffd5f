//! Reads the kernel's elements before the desired state is known: a restart compares all elements, and reading them takes as
//! long as listing the store.

use super::read;
use crate::nftables::desired::existing_elements::Elements;
use crate::nftables::{
    desired::capacity::is_worth_reading_ahead,
    netlink::{NetlinkError, Socket},
};

/// The elements at a generation of the ruleset.
#[derive(Debug)]
pub(crate) struct PrefetchedElements {
    generation: u32,
    elements: Elements,
}

impl PrefetchedElements {
    /// Reads the elements; none if that is not worthwhile, or something changed meanwhile.
    pub(crate) fn read(socket: &mut Socket) -> Result<Option<Self>, NetlinkError> {
        let generation = socket.generation()?;
        if read::table_header(socket)?.is_none() {
            return Ok(None);
        }
        let existing = read::existing(socket)?;
        if !is_worth_reading_ahead(&existing.sizes) {
            return Ok(None);
        }
        let elements = read::static_elements(socket, &existing)?;
        Ok((socket.generation()? == generation).then_some(Self {
            generation,
            elements,
        }))
    }

    /// The elements as they are now; none if any ruleset of this network namespace has changed since.
    pub(crate) fn elements(self, socket: &mut Socket) -> Result<Option<Elements>, NetlinkError> {
        let generation = socket.generation()?;
        if generation != self.generation {
            tracing::debug!(
                before = self.generation,
                now = generation,
                "rules have changed; reading the elements again"
            );
            return Ok(None);
        }
        let mut elements = self.elements;
        read::remembered_clients(socket, &mut elements)?;
        Ok(Some(elements))
    }
}
