//! What tests need of the outside.

mod authority;
mod etcd;
mod kubernetes;
mod proxy;

pub use authority::Authority;
pub use etcd::{Etcd, EtcdBackup, EtcdOptions};
pub use kubernetes::ApiServer;
pub use proxy::Proxy;
