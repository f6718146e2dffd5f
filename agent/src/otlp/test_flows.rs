//! Connections for tests.

use contiv_model::{Frontend, Protocol, ServiceId};
use contiv_node::flows::{FlowNews, FlowVerdict, ServiceFlow};
use jiff::Timestamp;

/// A new connection with this number, and a client of its own.
pub(super) fn flow(id: u32) -> ServiceFlow {
    ServiceFlow {
        event: FlowNews::New,
        at: Timestamp::UNIX_EPOCH,
        id: Some(id),
        service: ServiceId::new("shop", "web"),
        frontend: Frontend::NodePort {
            protocol: Protocol::Tcp,
            port: 30080,
        },
        client: ([10, 0, 0, 9], u16::try_from(id).unwrap()).into(),
        destination: ([10, 0, 0, 1], 30080).into(),
        backend: None,
        source: None,
        verdict: FlowVerdict::Served,
        reason: None,
        tcp_state: None,
        is_answered: false,
        started: None,
        traffic: None,
    }
}
