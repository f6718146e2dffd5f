//! From a Kubernetes API server to packets, by both ways in; and the manifests of `examples/kubernetes`.

mod cluster;
mod kube_proxy;
mod manifests;
mod moving_over;
mod packets;
