//! Frontends that services had a while ago, for those who still use them.

use std::collections::{BTreeMap, VecDeque};

use contiv_model::{Flow, Frontend, ServiceId, change::ServiceChange};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The most frontends that are remembered; the newest ones are kept.
const MAX_REMEMBERED: usize = 1000;

/// A frontend that a service has no longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerFrontend {
    /// The frontend.
    pub frontend: Frontend,
    /// The service that had it.
    pub service: ServiceId,
    /// When the service lost it.
    pub until: Timestamp,
}

/// The frontends that services have lost since the start, oldest first.
#[derive(Debug, Default)]
pub(super) struct FormerFrontends {
    remembered: VecDeque<FormerFrontend>,
}

impl FormerFrontends {
    /// Remembers the frontends that these changes remove.
    pub(super) fn update(
        &mut self,
        changes: &BTreeMap<ServiceId, ServiceChange>,
        until: Timestamp,
    ) {
        for (service, change) in changes {
            let Some(old) = &change.old else { continue };
            if change
                .new
                .as_ref()
                .is_some_and(|new| new.has_frontends_of(old))
            {
                continue;
            }
            let kept = change
                .new
                .as_ref()
                .map(|new| new.frontends())
                .unwrap_or_default();
            for frontend in old.frontends().difference(&kept) {
                let former = FormerFrontend {
                    frontend: *frontend,
                    service: service.clone(),
                    until,
                };
                self.remembered.push_back(former);
            }
            let excess = self.remembered.len().saturating_sub(MAX_REMEMBERED);
            self.remembered.drain(..excess);
        }
    }

    /// The frontend that a flow's destination was last; `is_node_port` says whether that is an address for node ports.
    pub(super) fn find(&self, flow: &Flow, is_node_port: bool) -> Option<&FormerFrontend> {
        let (address, port, protocol) = (flow.to(), flow.port(), flow.protocol());
        let by_address = Frontend::Address {
            address,
            protocol,
            port,
        };
        let by_node_port = Frontend::NodePort { protocol, port };
        let is_it = |former: &&FormerFrontend| {
            former.frontend == by_address || is_node_port && former.frontend == by_node_port
        };
        self.remembered.iter().rev().find(is_it)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use contiv_model::{ContivService, Protocol, ServicePort};

    use super::*;

    const THEN: Timestamp = Timestamp::UNIX_EPOCH;

    fn service(name: &str, address: [u8; 4], node_port: Option<u16>) -> Arc<ContivService> {
        let port = ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "".into(),
            node_port,
            backends: Vec::new(),
        };
        let id = ServiceId::new("shop", name);
        Arc::new(ContivService {
            cluster_ips: [address.into()].into(),
            ports: vec![port],
            ..ContivService::new(id)
        })
    }

    fn update(
        former: &mut FormerFrontends,
        old: Option<&Arc<ContivService>>,
        new: Option<&Arc<ContivService>>,
    ) {
        let Some(id) = old.or(new).map(|service| service.id.clone()) else {
            return;
        };
        let change = ServiceChange {
            old: old.cloned(),
            new: new.cloned(),
        };
        former.update(&BTreeMap::from([(id, change)]), THEN);
    }

    fn flow(to: &str) -> Flow {
        Flow::new([198, 51, 100, 7].into(), to.parse().unwrap(), Protocol::Tcp).unwrap()
    }

    #[test]
    fn frontend_lost_by_change_or_deletion_is_found() {
        let mut former = FormerFrontends::default();
        let (first, second) = (
            service("web", [10, 96, 0, 1], Some(30080)),
            service("web", [10, 96, 0, 2], None),
        );
        update(&mut former, None, Some(&first));
        assert_eq!(former.find(&flow("10.96.0.1:80"), false), None);
        update(&mut former, Some(&first), Some(&second));
        let found = former.find(&flow("10.96.0.1:80"), false).unwrap();
        assert_eq!(
            (found.service.to_string(), found.until),
            ("shop/web".to_owned(), THEN)
        );
        assert_eq!(
            former.find(&flow("192.0.2.1:30080"), false),
            None,
            "no address of a node"
        );
        assert!(former.find(&flow("192.0.2.1:30080"), true).is_some());
        assert_eq!(former.find(&flow("10.96.0.2:80"), false), None);
        update(&mut former, Some(&second), None);
        assert!(former.find(&flow("10.96.0.2:80"), false).is_some());
        assert_eq!(former.find(&flow("10.96.0.2:81"), false), None);
    }

    #[test]
    fn frontends_remembered_are_the_newest() {
        let mut former = FormerFrontends::default();
        let byte = |n: usize| u8::try_from(n % 256).unwrap();
        let address = |n: usize| [10, 97, byte(n / 256), byte(n)];
        for n in 0..=MAX_REMEMBERED {
            update(
                &mut former,
                Some(&service(&format!("s{n}"), address(n), None)),
                None,
            );
        }
        assert_eq!(former.find(&flow("10.97.0.0:80"), false), None);
        assert!(former.find(&flow("10.97.0.1:80"), false).is_some());
        assert_eq!(former.remembered.len(), MAX_REMEMBERED);
    }
}
