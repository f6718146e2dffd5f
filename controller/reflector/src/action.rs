//! The actions on a key.

/// The action for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Add,
    Update,
    Delete,
}
