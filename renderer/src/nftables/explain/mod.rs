//! Says what the rules do: with a flow, in text, and what was counted.

pub mod counters;
pub(crate) mod evaluate;
pub(crate) mod inspect;
pub(crate) mod text;
