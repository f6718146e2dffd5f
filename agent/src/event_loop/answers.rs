//! The loop's answers to what is asked of it.

use std::sync::Arc;

use contiv_model::{ContivService, ObjectKey, ServicePort};

use super::{EventLoop, LostFrontend, Query, Sizes, Status};

/// How many services without a backend are named.
const NAMED: usize = 5;

impl EventLoop {
    /// Answers. Who no longer waits for an answer does not need it.
    pub(super) fn answer(&mut self, query: Query) {
        match query {
            Query::Status(reply) => drop(reply.send(self.status())),
            Query::Ready(reply) if self.was_ready => drop(reply.send(())),
            Query::Ready(reply) => self.awaiting_readiness.push(reply),
            Query::Sizes(reply) => {
                self.renderers.set_gauges();
                let _ = reply.send(self.sizes());
            }
            Query::Snapshot(reply) => {
                drop(
                    reply.send(
                        self.store.is_synced.then(|| self.handover.corrected(self.processor.snapshot())),
                    ),
                );
            }
            Query::Services(reply) => drop(reply.send(self.services())),
            Query::Service(id, reply) => {
                let mut service = self.processor.service(&id).cloned();
                if let Some(service) = &mut service {
                    self.handover.correct(service);
                }
                drop(reply.send(service));
            }
            Query::Objects(kind, reply) => drop(reply.send(self.processor.objects(kind))),
            Query::Nodes(reply) => drop(reply.send(self.processor.nodes())),
            Query::Renderers(reply) => {
                let mut views = self.renderers.views();
                for view in &mut views {
                    view.verification = self.verifiers.view(&view.name);
                }
                drop(reply.send(views));
            }
            Query::Pods(reply) => drop(reply.send(self.processor.attached().clone())),
            Query::Dump(name, found, reply) => drop(found.send(self.renderers.ask(&name, reply))),
            Query::Quarantine(skip, reply) => {
                let is_known = |object: &ObjectKey| self.processor.object(object).is_some();
                drop(reply.send(self.quarantine.list(skip, is_known)));
            }
            Query::History(query, reply) => drop(reply.send(self.history.query(query))),
        }
    }

    fn status(&self) -> Status {
        Status {
            node: self.node.clone(),
            version: env!("CARGO_PKG_VERSION"),
            started: self.started_at,
            store: self.store_name.clone(),
            ready: self.was_ready,
            synced: self.store.is_synced,
            revision: self.store.revision,
            held_deletions: self.guard.held().cloned(),
            from_mirror: self.store.is_of_mirror,
            mirror: self.mirror.status(),
            store_down: self.store.down.clone(),
            quarantined: self.quarantine.len(),
            events: self.history.newest(),
        }
    }

    /// Every service as renderers have it.
    fn services(&self) -> Vec<Arc<ContivService>> {
        let corrected = |(_, service): (_, &Arc<ContivService>)| {
            let mut service = Arc::clone(service);
            self.handover.correct(&mut service);
            service
        };
        self.processor.services().map(corrected).collect()
    }

    /// Counted in one go where they are: nothing is copied for it.
    fn sizes(&self) -> Sizes {
        let left_to_other_proxies = self.processor.services_left_to_others().count();
        let mut sizes = Sizes { left_to_other_proxies, ..Sizes::default() };
        for (id, service) in self.processor.services() {
            sizes.services += 1;
            sizes.service_ports += service.ports.len();
            sizes.backends += service.ports.iter().map(|port| port.backends.len()).sum::<usize>();
            let is_served = |port: &ServicePort| {
                port.backends.iter().any(|backend| service.is_in_family_of(backend.address))
            };
            if !service.ports.iter().all(is_served) {
                sizes.services_without_backends += 1;
                if sizes.without_backends.len() < NAMED {
                    sizes.without_backends.push(id.clone());
                }
            }
            if let Some((frontend, holder)) = service.lost.iter().next() {
                sizes.services_with_lost_frontends += 1;
                if sizes.lost_frontends.len() < NAMED {
                    sizes.lost_frontends.push(LostFrontend {
                        service: id.clone(),
                        frontend: *frontend,
                        holder: holder.clone(),
                    });
                }
            }
        }
        sizes
    }
}
