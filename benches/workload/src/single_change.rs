//! The changes that users make all day, each to a single service.

use contiv_model::{Event, ObjectKey};

use crate::services::{ServiceVariant, UndecodableValue, Variant, Workload, decode, service_id};

/// The first node port that a change gives; Kubernetes' range begins there.
const FIRST_NODE_PORT: u16 = 30_000;
const NODE_PORTS: u16 = 2768;

/// A key and its new value; none deletes it.
pub type Write = (String, Option<String>);

/// A kind of change. A service that goes through [`SingleChange::ALL`] in its order ends as it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SingleChange {
    /// A backend more.
    BackendAdded,
    /// Another backend in place of one.
    BackendReplaced,
    /// A backend less.
    BackendRemoved,
    /// The last endpoint is gone: connections are refused from now on.
    EndpointsLost,
    /// The first endpoints of a service without any.
    EndpointsBack,
    /// Session affinity is switched on.
    AffinityOn,
    /// And off.
    AffinityOff,
    /// The service gets a node port.
    NodePortGiven,
    /// And loses it.
    NodePortTaken,
    /// The service is deleted.
    ServiceDeleted,
    /// And created again.
    ServiceCreated,
}

impl SingleChange {
    /// All kinds, in the order in which a service goes through them.
    pub const ALL: [Self; 11] = [
        Self::BackendAdded,
        Self::BackendReplaced,
        Self::BackendRemoved,
        Self::EndpointsLost,
        Self::EndpointsBack,
        Self::AffinityOn,
        Self::AffinityOff,
        Self::NodePortGiven,
        Self::NodePortTaken,
        Self::ServiceDeleted,
        Self::ServiceCreated,
    ];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BackendAdded => "backend added",
            Self::BackendReplaced => "backend replaced",
            Self::BackendRemoved => "backend removed",
            Self::EndpointsLost => "last endpoint lost",
            Self::EndpointsBack => "first endpoint back",
            Self::AffinityOn => "affinity on",
            Self::AffinityOff => "affinity off",
            Self::NodePortGiven => "node port given",
            Self::NodePortTaken => "node port taken",
            Self::ServiceDeleted => "service deleted",
            Self::ServiceCreated => "service created",
        }
    }

    /// The writes to the store for the round with this number.
    pub fn write(self, workload: Workload, service: usize, round: u32) -> Write {
        let slice = |variant| {
            let (key, value) = workload.slice(service, 0, variant);
            (key, Some(value))
        };
        let put = |variant| {
            let (key, value) = Workload::service(service, variant);
            (key, Some(value))
        };
        match self {
            Self::BackendAdded => slice(Variant::OneMore(2 * round)),
            Self::BackendReplaced => slice(Variant::OneMore(2 * round + 1)),
            Self::EndpointsLost => slice(Variant::NoneLeft),
            Self::BackendRemoved | Self::EndpointsBack => slice(Variant::Original),
            Self::AffinityOn => put(ServiceVariant::Affinity),
            Self::NodePortGiven => {
                let number = u16::try_from(round % u32::from(NODE_PORTS)).unwrap_or_default();
                put(ServiceVariant::NodePort(FIRST_NODE_PORT + number))
            }
            Self::AffinityOff | Self::NodePortTaken | Self::ServiceCreated => {
                put(ServiceVariant::Original)
            }
            Self::ServiceDeleted => (Workload::service(service, ServiceVariant::Original).0, None),
        }
    }

    /// The same as the processor's input.
    ///
    /// # Errors
    /// When a value cannot be decoded because the product has changed.
    pub fn event(
        self,
        workload: Workload,
        service: usize,
        round: u32,
    ) -> Result<Event, UndecodableValue> {
        match self.write(workload, service, round) {
            (key, Some(value)) => decode(&key, value.as_bytes()).map(Event::Put),
            (_, None) => Ok(Event::Delete(ObjectKey::Service(service_id(service)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_changes_its_service_and_all_together_nothing() {
        let workload = Workload {
            services: 3,
            backends: 4,
        };
        let mut processor = workload.processor().unwrap();
        let before = processor.snapshot();
        for round in 0..2 {
            for kind in SingleChange::ALL {
                let changes = processor.apply([kind.event(workload, 1, round).unwrap()]);
                assert_eq!(changes.services.len(), 1, "{kind:?} changes one service");
            }
        }
        assert_eq!(processor.snapshot(), before);
    }
}
