//! The stored messages of contiv, their JSON form, the text form of their addresses, and the etcd key schema.
//!
//! The messages have Contiv's field numbers, so that the data of an existing cluster can be read unchanged; additional fields
//! of Kubernetes have new numbers.

pub mod address;
pub mod annotation;
pub mod check;
pub mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod key;
pub mod kind;
pub mod label;
pub mod message;
mod number;
pub mod object;
pub mod taint;
pub mod value;
pub mod wire;

pub use error::{DecodeError, EncodeError};
pub use key::{Key, KeyError};
pub use kind::{Kind, UnknownKind};
pub use object::Object;
pub use wire::Wire;
