//! What tests need of the outside.

mod etcd;
mod proxy;

pub use etcd::Etcd;
pub use proxy::Proxy;
