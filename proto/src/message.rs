//! The messages as prost and pbjson generate them, one module per `.proto` file.

// Generated code is not ours to style.
#![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]

/// Pods.
pub mod pod {
    include!(concat!(env!("OUT_DIR"), "/pod.rs"));
    include!(concat!(env!("OUT_DIR"), "/pod.serde.rs"));
}
/// Services.
pub mod service {
    include!(concat!(env!("OUT_DIR"), "/service.rs"));
    include!(concat!(env!("OUT_DIR"), "/service.serde.rs"));
}
/// Endpoints, the older form of what backs a service.
pub mod endpoints {
    include!(concat!(env!("OUT_DIR"), "/endpoints.rs"));
    include!(concat!(env!("OUT_DIR"), "/endpoints.serde.rs"));
}
/// Endpoint slices.
pub mod endpointslice {
    include!(concat!(env!("OUT_DIR"), "/endpointslice.rs"));
    include!(concat!(env!("OUT_DIR"), "/endpointslice.serde.rs"));
}
/// External workloads.
pub mod externalworkload {
    include!(concat!(env!("OUT_DIR"), "/externalworkload.rs"));
    include!(concat!(env!("OUT_DIR"), "/externalworkload.serde.rs"));
}
/// Nodes.
pub mod node {
    include!(concat!(env!("OUT_DIR"), "/node.rs"));
    include!(concat!(env!("OUT_DIR"), "/node.serde.rs"));
}
/// Namespaces.
pub mod namespace {
    include!(concat!(env!("OUT_DIR"), "/namespace.rs"));
    include!(concat!(env!("OUT_DIR"), "/namespace.serde.rs"));
}
/// Custom IP allocations.
pub mod ipalloc {
    include!(concat!(env!("OUT_DIR"), "/ipalloc.rs"));
    include!(concat!(env!("OUT_DIR"), "/ipalloc.serde.rs"));
}
/// Node ids and dataplane addresses.
pub mod vppnode {
    include!(concat!(env!("OUT_DIR"), "/vppnode.rs"));
    include!(concat!(env!("OUT_DIR"), "/vppnode.serde.rs"));
}
