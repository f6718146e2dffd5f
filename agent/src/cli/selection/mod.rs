//! What a command is about: names, patterns, labels, namespaces, ports.

pub(crate) mod complete;
pub(crate) mod filter;
pub(crate) mod name;
pub(crate) mod resources;
pub(crate) mod scope;
pub(crate) mod selector;
pub(crate) mod stored;
