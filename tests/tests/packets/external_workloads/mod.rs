//! External workloads, from their manifests to packets: a real etcd, a real `contiv controller`, a real agent.

mod packets;
