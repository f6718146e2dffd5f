//! External workloads, from their manifests to packets: a real etcd, real `contiv controller` processes, a real agent.

mod fleet;
mod history;
mod interrupted;
mod packets;
mod registry;
