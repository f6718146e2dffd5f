//! State in a real etcd, in Contiv's form.

mod client;
mod disaster;
mod member;
mod members;

pub use client::{EtcdClient, ROOT};
pub use disaster::{Backup, Isolation};
pub use members::Etcd;
