//! What the changes do to connections that there are.

use std::{collections::BTreeMap, net::SocketAddr};

use contiv_model::{Flow, Frontend, Protocol, ServiceId, Snapshot};
use contiv_renderer::packet_path::{FlowFate, FlowFates, KnownFlow, TcpState};
use serde::Serialize;

use super::changes::StateComparison;
use crate::cli::{
    commands::compared_flows::{OtherRules as _, OtherState},
    output::{
        color::TextStyle,
        listing::{Item, Listing},
        table::Cell,
    },
};

/// The connections of a service to frontends that change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct LiveFlows {
    /// They keep the backend and the source address that they have.
    pub(super) go_on: usize,
    /// Those of them whose client's next connection will be masqueraded otherwise.
    pub(super) other_source: usize,
    /// The same, although their backend is none of the service any more.
    pub(super) drained: usize,
    /// Their next packet begins anew, or is refused.
    pub(super) deleted: usize,
}

/// Counts connections by service.
#[derive(Debug)]
pub(super) struct LiveFlowCounter<'a> {
    services: BTreeMap<(SocketAddr, Protocol), Option<&'a ServiceId>>,
    fates: &'a FlowFates,
    new: OtherState<'a>,
    counts: LiveFlowsByService<'a>,
}

/// The connections of services that have the frontends now; without a service those of frontends that only the kernel has.
pub(super) type LiveFlowsByService<'a> = BTreeMap<Option<&'a ServiceId>, LiveFlows>;

impl<'a> LiveFlowCounter<'a> {
    pub(super) fn new(
        changes: &'a StateComparison,
        fates: &'a FlowFates,
        new: &'a Snapshot,
    ) -> Self {
        let mut services = BTreeMap::new();
        for change in &changes.changes {
            let protocol = match change.frontend {
                Frontend::Address { protocol, .. } | Frontend::NodePort { protocol, .. } => {
                    protocol
                }
            };
            let service = change.former_service.as_ref().or(change.service.as_ref());
            services.entry((change.to, protocol)).or_insert(service);
        }
        Self {
            services,
            fates,
            new: OtherState::new(new),
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
            let has_other_source = self.has_other_source(flow);
            let count = self.counts.entry(*service).or_default();
            match self.fates.of(flow) {
                FlowFate::GoesOn => {
                    count.go_on += 1;
                    count.other_source += usize::from(has_other_source);
                }
                FlowFate::Drained => count.drained += 1,
                FlowFate::Deleted => count.deleted += 1,
            }
        }
    }

    /// Whether the same client would reach the same backend with another source.
    fn has_other_source(&self, known: &KnownFlow) -> bool {
        // Where pods are known by their interfaces, an address does not tell.
        let is_known = self
            .new
            .node()
            .is_some_and(|node| node.pod_interfaces.is_empty());
        let flow = Flow::new(known.client.ip(), known.destination, known.protocol);
        let (Ok(flow), true) = (flow, is_known) else {
            return false;
        };
        let end = self.new.end(&flow);
        end.backends.contains(&known.server)
            && end.masqueraded.contains(&known.server) != known.is_source_translated
    }

    /// The counts by service.
    pub(super) fn finish(self) -> LiveFlowsByService<'a> {
        self.counts
    }
}

/// A row for each service.
pub(super) fn listing(flows: &LiveFlowsByService<'_>) -> Listing {
    let item = |service: Option<&ServiceId>, count: &LiveFlows| {
        let service = service.map_or_else(|| "-".to_owned(), ToString::to_string);
        let LiveFlows {
            go_on,
            other_source,
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
            name: service.clone(),
            value: serde_json::Value::Null,
            cells: (
                vec![
                    service.into(),
                    (go_on + drained + deleted).to_string().into(),
                    go_on.to_string().into(),
                    other_source.to_string().into(),
                    Cell::styled(drained.to_string(), style(drained)),
                    Cell::styled(deleted.to_string(), style(deleted)),
                ],
                Vec::new(),
            ),
        }
    };
    Listing {
        header: (
            [
                "SERVICE",
                "LIVE",
                "GO ON",
                "OTHER SOURCE NEXT",
                "DRAINED",
                "DELETED",
            ]
            .to_vec(),
            Vec::new(),
        ),
        items: flows
            .iter()
            .map(|(service, count)| item(*service, count))
            .collect(),
    }
}
