//! Helpers of tests: real etcds, proxies, certificates, and an API server in memory.

mod authority;
mod etcd;
mod grpc_proxy;
mod kubernetes;
mod proxy;

pub use authority::Authority;
pub use etcd::{Etcd, EtcdBackup, EtcdOptions};
pub use grpc_proxy::GrpcProxy;
pub use kubernetes::{ApiServer, ApiServerBackup};
pub use proxy::Proxy;
