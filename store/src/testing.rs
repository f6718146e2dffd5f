//! What tests need of the outside.

mod authority;
mod etcd;
mod proxy;

pub use authority::Authority;
pub use etcd::{Etcd, EtcdOptions};
pub use proxy::Proxy;
