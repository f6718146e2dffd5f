//! The proof of the dataplane: a service of the agent's own, through which it connects to itself.

use std::sync::Arc;

use contiv_model::{ContivService, Snapshot};
use jiff::Timestamp;
use serde::Serialize;

/// Why a connection through the rules fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SelfCheckFailure {
    /// Since when.
    pub since: Timestamp,
    /// The step that fails.
    pub reason: String,
}

/// The own service, and how it fares.
#[derive(Debug, Default)]
pub(super) struct SelfCheck {
    service: Option<Arc<ContivService>>,
    failure: Option<SelfCheckFailure>,
}

impl SelfCheck {
    pub(super) const fn new(service: Option<Arc<ContivService>>) -> Self {
        Self {
            service,
            failure: None,
        }
    }

    /// Adds the own service.
    pub(super) fn with_service(&self, mut snapshot: Snapshot) -> Snapshot {
        if let Some(service) = &self.service {
            let id = service.id.clone();
            snapshot.services.insert(id, Arc::clone(service));
        }
        snapshot
    }

    /// The text of an event, if the result is not as before.
    pub(super) fn on_checked(&mut self, failure: Option<String>, now: Timestamp) -> Option<String> {
        if self.failure.as_ref().map(|known| &known.reason) == failure.as_ref() {
            return None;
        }
        let text = failure.as_ref().map_or_else(
            || "the agent reaches itself through its rules again".to_owned(),
            |reason| format!("the agent does not reach itself through its rules: {reason}"),
        );
        let since = self.failure.as_ref().map_or(now, |known| known.since);
        self.failure = failure.map(|reason| SelfCheckFailure { since, reason });
        Some(text)
    }

    pub(super) const fn failure(&self) -> Option<&SelfCheckFailure> {
        self.failure.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use contiv_model::ServiceId;

    use super::*;

    #[test]
    fn change_of_the_result_is_an_event_and_the_first_failure_counts() {
        let mut check = SelfCheck::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(check.on_checked(None, at(1)), None, "it worked before too");
        let failed = |text: &str| Some(text.to_owned());
        let event = check.on_checked(failed("a rule drops it"), at(2)).unwrap();
        assert!(event.contains("a rule drops it"), "{event}");
        assert_eq!(check.on_checked(failed("a rule drops it"), at(3)), None);
        assert!(check.on_checked(failed("no table"), at(4)).is_some());
        let failure = check.failure().unwrap();
        assert_eq!((failure.since, &*failure.reason), (at(2), "no table"));
        assert!(check.on_checked(None, at(5)).is_some());
        assert_eq!(check.failure(), None);
    }

    #[test]
    fn own_service_is_beside_those_of_the_store() {
        let id = ServiceId::new("contiv", "self-check");
        let check = SelfCheck::new(Some(Arc::new(ContivService::new(id.clone()))));
        let snapshot = check.with_service(Snapshot::default());
        assert!(snapshot.services.contains_key(&id));
        let none = SelfCheck::default().with_service(Snapshot::default());
        assert!(none.services.is_empty());
    }
}
