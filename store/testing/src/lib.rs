//! Stores for tests.
//!
//! - [`MemoryStore`] follows etcd's rules in memory, by a clock that can be paused, and fails as [`Faults`] say.
//! - [`Etcd`] is a real one, alone or a member of a cluster; [`GrpcProxy`] is etcd's own proxy before it, and
//!   [`LyingEtcd`] one that changes what it says; a [`Liar`] lies about one event in many.
//! - [`ApiServer`] is an API server of Kubernetes in memory, over real HTTP.
//! - [`Proxy`] is a wire that can be cut; [`Authority`] makes the certificates of both ends.
//! - [`ReservedPort`] is a port for a server that starts later, or never.
//! - [`stored`] makes stored values; [`deliveries`] awaits what a feed delivers.

mod authority;
pub mod deliveries;
mod etcd;
mod faults;
mod grpc_proxy;
mod kubernetes;
mod liar;
mod lying_etcd;
mod memory;
mod proxy;
mod reserved_port;
mod server_process;
pub mod stored;

pub use authority::Authority;
pub use etcd::{Etcd, EtcdBackup, EtcdOptions};
pub use faults::Faults;
pub use grpc_proxy::GrpcProxy;
pub use kubernetes::{ApiServer, ApiServerBackup, Exchange};
pub use liar::{Liar, Lie, LieKind, Passed};
pub use lying_etcd::LyingEtcd;
pub use memory::MemoryStore;
pub use proxy::Proxy;
pub use reserved_port::ReservedPort;
