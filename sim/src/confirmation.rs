//! Checks how held deletions end: by one list, once they are confirmed by an operator or their deadline has passed, or by a list
//! that no longer has too many.

use contiv_node::{HeldDeletions, message::Input};
use jiff::Timestamp;

/// Whether the next list may delete as much as it wants.
#[derive(Debug, Default)]
pub(crate) struct Confirmation {
    is_given: bool,
}

impl Confirmation {
    /// An agent with these held deletions gets an input.
    pub(crate) fn on_input(&mut self, input: &Input, held: Option<&HeldDeletions>, now: Timestamp) {
        let is_overdue = held.is_some_and(|held| held.until <= now);
        let is_confirmed = held.is_some() && matches!(input, Input::ConfirmDeletions(_));
        self.is_given |= is_overdue || is_confirmed;
    }

    /// An agent has handled an input that removed `gone` services. `held` are the held deletions before and after it.
    pub(crate) fn check(
        &mut self,
        is_list: bool,
        held: (Option<&HeldDeletions>, Option<&HeldDeletions>),
        was_synced: bool,
        gone: usize,
        is_mass: bool,
    ) -> Result<(), &'static str> {
        // A confirmation is for one list.
        let is_confirmed = is_list && std::mem::take(&mut self.is_given);
        match held {
            (None, None) if is_mass => Err("no deletion is held"),
            (Some(_), None) if !is_list => Err("held deletions ended without a list"),
            (Some(_), None) if is_mass && !is_confirmed => Err("held deletions were not confirmed"),
            (_, Some(_)) if was_synced && gone > 0 => Err("deletions are held"),
            _ => Ok(()),
        }
    }
}
