//! What tests need of the outside.

mod etcd;

pub use etcd::Etcd;
