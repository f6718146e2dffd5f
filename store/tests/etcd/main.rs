//! The store on a real etcd: its members killed, cut off, restored, behind TLS, passwords and proxies.

mod commits;
mod feed;
mod grpc_proxy;
mod killed;
mod login;
mod members;
mod revisions;
mod tls;
mod too_large;
