//! What the table should hold: services become elements, and a difference of two states a transaction. Pure.
//!
//! ```text
//! ContivService ─ plan ─► elements ─ table (remembered) ─► transaction
//! ```

pub(crate) mod capacity;
pub(crate) mod carriers;
pub(crate) mod desired_elements;
pub(crate) mod element;
pub(crate) mod elements;
pub(crate) mod existing_elements;
pub(crate) mod needed_chains;
pub(crate) mod plan;
pub(crate) mod programmed_elements;
pub(crate) mod shared_address;
pub(crate) mod slots;
pub(crate) mod table;
pub(crate) mod transaction;
