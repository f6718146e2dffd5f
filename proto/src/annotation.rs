//! Annotations for settings without a field in Kubernetes.

use std::collections::BTreeMap;

use thiserror::Error;

/// Annotations as they are in a message.
type Annotations = BTreeMap<String, String>;

/// An annotation of services with two values, one of which is the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch {
    /// Name of the annotation.
    pub name: &'static str,
    /// The default value, equal to no annotation.
    pub default: &'static str,
    /// The other value.
    pub other: &'static str,
}

/// Whether a client with session affinity has a backend for each port, or one for all ports of the service.
pub const SESSION_AFFINITY_SCOPE: Switch = Switch {
    name: "contiv.io/session-affinity-scope",
    default: "port",
    other: "service",
};

/// Whether backends are selected at random or by the client's address.
pub const BALANCE: Switch = Switch {
    name: "contiv.io/balance",
    default: "random",
    other: "client-address",
};

/// Whether traffic with policy Cluster stays on the node as long as there is a ready backend.
pub const PREFER_LOCAL: Switch = Switch {
    name: "contiv.io/prefer-local",
    default: "false",
    other: "true",
};

/// Whether established TCP connections to a removed backend are reset.
pub const RESET_CONNECTIONS: Switch = Switch {
    name: "contiv.io/reset-connections",
    default: "false",
    other: "true",
};

/// The renderer that carries the addresses of the service. Without the annotation the node's configuration decides.
pub const RENDERER: Switch = Switch {
    name: "contiv.io/renderer",
    default: "nftables",
    other: "route",
};

/// An annotation of services with several values. Without it the node's configuration decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Name of the annotation.
    pub name: &'static str,
    /// The values.
    pub values: &'static [&'static str],
}

/// Whether a backend that does not answer this node's clients leaves the choice for their connections.
pub const FAILOVER: Choice = Choice {
    name: "contiv.io/failover",
    values: &["off", "observe", "on"],
};

/// The annotations of services with two values.
const SWITCHES: [Switch; 5] = [
    SESSION_AFFINITY_SCOPE,
    BALANCE,
    PREFER_LOCAL,
    RESET_CONNECTIONS,
    RENDERER,
];

/// The annotation of endpoint slices with the time of the change of a pod or service that caused the slice to change.
pub const LAST_CHANGE_TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Why the value of an annotation is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AnnotationError {
    /// It is neither value of a switch.
    #[error("{value:?} is neither {default} nor {other}")]
    Choice {
        /// The value.
        value: String,
        /// One that is valid.
        default: &'static str,
        /// The other one.
        other: &'static str,
    },
    /// It is no value of a choice.
    #[error("{value:?} is none of {}", .values.join(", "))]
    Value {
        /// The value.
        value: String,
        /// Those that are valid.
        values: &'static [&'static str],
    },
    /// It is not a weight.
    #[error("{0:?} is not a whole number from 1 to 255")]
    Weight(String),
}

/// Annotation of pods: their weight as backends.
pub const WEIGHT: &str = "contiv.io/weight";

impl Switch {
    /// Whether the annotation has the other value rather than the default.
    ///
    /// # Errors
    /// [`AnnotationError::Choice`].
    pub fn is_set(&self, annotations: &Annotations) -> Result<bool, AnnotationError> {
        Ok(self.choice(annotations)?.unwrap_or(false))
    }

    /// The same, with none for a missing annotation.
    ///
    /// # Errors
    /// [`AnnotationError::Choice`].
    pub fn choice(&self, annotations: &Annotations) -> Result<Option<bool>, AnnotationError> {
        match annotations.get(self.name) {
            None => Ok(None),
            Some(value) if value == self.default => Ok(Some(false)),
            Some(value) if value == self.other => Ok(Some(true)),
            Some(value) => Err(AnnotationError::Choice {
                value: value.clone(),
                default: self.default,
                other: self.other,
            }),
        }
    }
}

impl Choice {
    /// The value of the annotation; none if it is missing.
    ///
    /// # Errors
    /// [`AnnotationError::Value`].
    pub fn value(
        &self,
        annotations: &Annotations,
    ) -> Result<Option<&'static str>, AnnotationError> {
        let Some(value) = annotations.get(self.name) else {
            return Ok(None);
        };
        let known = self.values.iter().find(|known| *known == value);
        known
            .map(|known| Some(*known))
            .ok_or_else(|| AnnotationError::Value {
                value: value.clone(),
                values: self.values,
            })
    }
}

/// The invalid annotations of a service: the name of each, and why its value is invalid.
pub fn errors_of_service(annotations: &Annotations) -> Vec<(&'static str, AnnotationError)> {
    let of_switches = SWITCHES
        .into_iter()
        .map(|switch| (switch.name, switch.is_set(annotations).err()));
    of_switches
        .chain([(FAILOVER.name, FAILOVER.value(annotations).err())])
        .filter_map(|(name, error)| Some((name, error?)))
        .collect()
}

/// The weight of a pod, from 1, the default, to 255.
///
/// # Errors
/// [`AnnotationError::Weight`].
pub fn weight(annotations: &Annotations) -> Result<u8, AnnotationError> {
    let Some(value) = annotations.get(WEIGHT) else {
        return Ok(1);
    };
    match value.parse() {
        Ok(weight) if weight > 0 => Ok(weight),
        _ => Err(AnnotationError::Weight(value.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotated(name: &str, value: &str) -> Annotations {
        Annotations::from([(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn switch_is_set_by_its_other_value_only() {
        for switch in SWITCHES {
            assert_eq!(switch.is_set(&Annotations::new()), Ok(false));
            assert_eq!(
                switch.is_set(&annotated(switch.name, switch.default)),
                Ok(false)
            );
            assert_eq!(
                switch.is_set(&annotated(switch.name, switch.other)),
                Ok(true)
            );
            assert_eq!(switch.choice(&Annotations::new()), Ok(None));
            assert_eq!(
                switch.choice(&annotated(switch.name, switch.default)),
                Ok(Some(false))
            );
            for wrong in ["", "True", "yes", "1", " true"] {
                let problem = switch
                    .is_set(&annotated(switch.name, wrong))
                    .unwrap_err()
                    .to_string();
                assert!(
                    problem.contains(switch.default) && problem.contains(switch.other),
                    "{problem}"
                );
            }
        }
    }

    #[test]
    fn failover_has_three_values_and_no_other() {
        assert_eq!(FAILOVER.value(&Annotations::new()), Ok(None));
        for value in FAILOVER.values {
            let annotations = annotated(FAILOVER.name, value);
            assert_eq!(FAILOVER.value(&annotations), Ok(Some(*value)));
            assert_eq!(errors_of_service(&annotations), []);
        }
        for wrong in ["", "On", "true", " on"] {
            let errors = errors_of_service(&annotated(FAILOVER.name, wrong));
            let [(name, error)] = &errors[..] else {
                panic!("{wrong:?}: {errors:?}")
            };
            assert_eq!(*name, FAILOVER.name);
            assert_eq!(
                error.to_string(),
                format!("{wrong:?} is none of off, observe, on")
            );
        }
    }

    #[test]
    fn weight_is_number_from_1_to_255() {
        assert_eq!(weight(&Annotations::new()), Ok(1));
        assert_eq!(weight(&annotated(WEIGHT, "1")), Ok(1));
        assert_eq!(weight(&annotated(WEIGHT, "255")), Ok(255));
        for wrong in ["", "0", "256", "-1", "1.5", "x", " 2"] {
            assert!(
                weight(&annotated(WEIGHT, wrong))
                    .unwrap_err()
                    .to_string()
                    .contains("from 1 to 255"),
                "{wrong:?}"
            );
        }
    }
}
