//! From a Kubernetes API server to packets, directly and by the reflector; and the manifests of `packaging/kubernetes`.

pub(crate) mod cluster;
mod manifests;
mod moving_over;
mod packets;
