//! The types that are reflected.

use contiv_proto::Kind;

/// The types that are reflected.
pub const KINDS: [Kind; 7] = [
    Kind::Namespace,
    Kind::Node,
    Kind::Pod,
    Kind::Service,
    Kind::Endpoints,
    Kind::EndpointSlice,
    Kind::ExternalWorkload,
];
