//! The store on a real etcd: members that are killed, isolated or restored, TLS, passwords and proxies.

mod commits;
mod feed;
mod grpc_proxy;
mod lie_campaign;
mod lies;
mod login;
mod members;
mod ranges;
mod revisions;
mod tls;
mod too_large;
