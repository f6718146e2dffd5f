//! Typed ids. Two ids of different kinds cannot be mixed up; cloning one costs a reference count.

use std::{cmp::Ordering, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

macro_rules! namespaced_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub struct $name {
            /// The namespace.
            pub namespace: Arc<str>,
            /// The name within the namespace.
            pub name: Arc<str>,
        }

        impl $name {
            /// An id from its two parts.
            pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
                Self { namespace: namespace.into(), name: name.into() }
            }
        }

        // Ordered by namespace, then by name. Most ids of a map share one namespace, which is in memory once.
        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                shared_cmp(&self.namespace, &other.namespace).then_with(|| shared_cmp(&self.name, &other.name))
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}/{}", self.namespace, self.name)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                let parts = text.split_once('/');
                let (namespace, name) =
                    parts.ok_or_else(|| de::Error::custom(format_args!("{text:?} is not of the form NAMESPACE/NAME")))?;
                Ok(Self::new(namespace, name))
            }
        }
    };
}

/// Compares two texts; two references to the same text are equal without comparing bytes.
fn shared_cmp(a: &Arc<str>, b: &Arc<str>) -> Ordering {
    if Arc::ptr_eq(a, b) {
        Ordering::Equal
    } else {
        a.cmp(b)
    }
}

macro_rules! plain_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Arc<str>);

        impl $name {
            /// An id from its text.
            pub fn new(name: impl Into<Arc<str>>) -> Self {
                Self(name.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

namespaced_id!(
    /// A service. Its endpoints object carries the same namespace and name.
    ServiceId
);
namespaced_id!(
    /// A pod.
    PodId
);
namespaced_id!(
    /// An endpoint slice; which service it belongs to is a field of the slice, not part of its id.
    EndpointSliceId
);
plain_id!(
    /// A node.
    NodeName
);
plain_id!(
    /// A network interface of this node.
    InterfaceName
);
