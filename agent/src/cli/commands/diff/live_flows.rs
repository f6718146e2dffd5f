//! What the changes do to connections that there are.

use std::{collections::BTreeMap, net::SocketAddr};

use contiv_model::{Frontend, Protocol, ServiceId};
use contiv_renderer::packet_path::{FlowFate, FlowFates, KnownFlow, TcpState};
use serde::Serialize;

use super::changes::Changes;
use crate::cli::output::{
    color::TextStyle,
    listing::{Item, Listing},
    table::Cell,
};

/// The connections of a service to frontends that change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct LiveFlows {
    /// They keep the backend and the source address that they have.
    pub(super) go_on: usize,
    /// The same, although their backend is none of the service any more.
    pub(super) drained: usize,
    /// Their next packet begins anew, or is refused.
    pub(super) deleted: usize,
}

/// Counts connections by service.
#[derive(Debug)]
pub(super) struct LiveFlowCounter<'a> {
    services: BTreeMap<(SocketAddr, Protocol), &'a ServiceId>,
    fates: &'a FlowFates,
    counts: BTreeMap<&'a ServiceId, LiveFlows>,
}

impl<'a> LiveFlowCounter<'a> {
    pub(super) fn new(changes: &'a Changes, fates: &'a FlowFates) -> Self {
        let mut services = BTreeMap::new();
        for change in &changes.changes {
            let protocol = match change.frontend {
                Frontend::Address { protocol, .. } | Frontend::NodePort { protocol, .. } => {
                    protocol
                }
            };
            if let Some(service) = &change.service {
                services.entry((change.to, protocol)).or_insert(service);
            }
        }
        Self {
            services,
            fates,
            counts: BTreeMap::new(),
        }
    }

    /// Adds a connection, unless it is over, or to a frontend that does not change.
    pub(super) fn add(&mut self, flow: &KnownFlow) {
        let is_over = matches!(
            flow.tcp_state,
            Some(TcpState::TimeWait | TcpState::Close | TcpState::LastAck)
        );
        let service = self.services.get(&(flow.destination, flow.protocol));
        if let (Some(service), false) = (service, is_over) {
            let count = self.counts.entry(service).or_default();
            match self.fates.of(flow) {
                FlowFate::GoesOn => count.go_on += 1,
                FlowFate::Drained => count.drained += 1,
                FlowFate::Deleted => count.deleted += 1,
            }
        }
    }

    /// The counts by service.
    pub(super) fn finish(self) -> BTreeMap<&'a ServiceId, LiveFlows> {
        self.counts
    }
}

/// A row for each service.
pub(super) fn listing(flows: &BTreeMap<&ServiceId, LiveFlows>) -> Listing {
    let item = |(service, count): (&&ServiceId, &LiveFlows)| {
        let LiveFlows {
            go_on,
            drained,
            deleted,
        } = *count;
        let style = |count| {
            if count > 0 {
                TextStyle::Warning
            } else {
                TextStyle::Plain
            }
        };
        Item {
            name: service.to_string(),
            value: serde_json::Value::Null,
            cells: (
                vec![
                    service.to_string().into(),
                    (go_on + drained + deleted).to_string().into(),
                    go_on.to_string().into(),
                    Cell::styled(drained.to_string(), style(drained)),
                    Cell::styled(deleted.to_string(), style(deleted)),
                ],
                Vec::new(),
            ),
        }
    };
    Listing {
        header: (
            ["SERVICE", "LIVE", "GO ON", "DRAINED", "DELETED"].to_vec(),
            Vec::new(),
        ),
        items: flows.iter().map(item).collect(),
    }
}
