//! From a Kubernetes API server to packets, directly and by the reflector; and the manifests of `examples/kubernetes`.

mod cluster;
mod kube_proxy;
mod manifests;
mod moving_over;
mod packets;
