//! Types of stored objects with their indexes, the objects, and their events.

mod index;
mod object;
mod resource_type;

pub use index::{Index, Labels};
pub(crate) use index::{NEXT_LABEL, pair};
pub use object::{Event, Key, Object};
pub use resource_type::ResourceType;
