//! The table.

/// The name of the one table the agent owns, in family inet.
pub(crate) const TABLE: &str = "contiv";
