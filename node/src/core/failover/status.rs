//! The state of failover for users.

use std::{collections::BTreeSet, net::SocketAddr};

use contiv_model::ServiceId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::message::FailureCause;

/// How many backends and services are named.
pub(super) const MAX_SHOWN: usize = 20;

/// The state of failover.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailoverStatus {
    /// The number of watched backends.
    pub watched: usize,
    /// The number of backends that are out, for each service that they are out of.
    pub out: usize,
    /// The first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<FailingBackend>,
    /// The first services of which so many backends are silent that this node may be cut off.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub cut_off: BTreeSet<ServiceId>,
    /// What the kernel lacks for failover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl FailoverStatus {
    /// What is out, in a line for people; none if nothing is.
    pub fn summary(&self) -> Option<String> {
        if let Some(first) = self.cut_off.first() {
            let more = more(self.cut_off.len() - 1);
            return Some(format!(
                "this node may be cut off: too many backends of {first}{more} are silent"
            ));
        }
        let first = self.backends.first()?;
        let FailingBackend {
            service,
            backend,
            cause,
            ..
        } = first;
        let more = more(self.out.saturating_sub(1));
        Some(format!("{service}: backend {backend} {cause}{more}"))
    }

    /// Why it does not work, for people.
    pub fn problem(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        Some(format!("failover does not work: {error}"))
    }
}

fn more(count: usize) -> String {
    match count {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    }
}

/// A backend that is out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingBackend {
    /// The service that does not choose it.
    pub service: ServiceId,
    /// Its address and port.
    pub backend: SocketAddr,
    /// Why.
    pub cause: FailureCause,
    /// Since when.
    pub since: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_names_the_first_and_counts_the_others() {
        let mut status = FailoverStatus::default();
        assert_eq!((status.summary(), status.problem()), (None, None));
        status.out = 3;
        status.backends = vec![FailingBackend {
            service: ServiceId::new("shop", "web"),
            backend: ([10, 1, 0, 1], 80).into(),
            cause: FailureCause::Silent,
            since: Timestamp::UNIX_EPOCH,
        }];
        assert_eq!(
            status.summary().as_deref(),
            Some("shop/web: backend 10.1.0.1:80 does not answer (and 2 more)")
        );
        status.cut_off.insert(ServiceId::new("shop", "web"));
        assert_eq!(
            status.summary().as_deref(),
            Some("this node may be cut off: too many backends of shop/web are silent")
        );
        status.error = Some("no module".to_owned());
        assert_eq!(
            status.problem().as_deref(),
            Some("failover does not work: no module")
        );
        let json = serde_json::to_value(&status).expect("JSON");
        assert_eq!(json["backends"][0]["cause"], "silent");
        assert_eq!(
            serde_json::from_value::<FailoverStatus>(json).expect("a status"),
            status
        );
    }
}
