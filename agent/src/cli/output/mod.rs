//! How answers are shown: tables, colours, watching, errors.

pub(crate) mod color;
pub(crate) mod error_chain;
pub(crate) mod format;
pub(crate) mod json_path;
pub(crate) mod keys;
pub(crate) mod listing;
pub(crate) mod outcome;
pub(crate) mod progress;
pub(crate) mod suggest;
pub(crate) mod table;
pub(crate) mod table_options;
pub(crate) mod terminal;
pub(crate) mod usage_error;
pub(crate) mod watch;
