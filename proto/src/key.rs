//! The etcd key schema, both ways. Source: Contiv's `ksr/model/*/key.go`, `nodesync/vppnode/key.go` and
//! `ipam/ipalloc/key.go`.
//!
//! The name comes before the namespace: `…/k8s/service/<name>/namespace/<ns>`.

use std::fmt;

use thiserror::Error;

use crate::kind::Kind;

/// The folder in which Contiv's reflector (and `contiv apply`) keeps resources.
pub const ROOT: &str = "/vnf-agent/contiv-ksr/";

/// Identity of one stored object: what its key says.
///
/// The parts are private because a key is only as good as they are: a slash in a name would make it the key of
/// another object. Ordered by type, then namespace, then name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    kind: Kind,
    namespace: Box<str>,
    name: Box<str>,
}

/// Why a key, or the parts of one, cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("key {key:?}: {problem}")]
pub struct KeyError {
    /// The whole key.
    pub key: String,
    /// Why it is invalid.
    pub problem: String,
}

impl Key {
    /// Makes a key of its parts. `namespace` is empty for the types that live outside namespaces; `name` is the
    /// decimal node id for [`Kind::VppNode`] and the pod's name for [`Kind::IpAllocation`].
    ///
    /// # Errors
    /// When a part is missing, is one too many, or holds a slash or a control character, and when a node id is not a
    /// positive decimal number of 32 bits. Whether Kubernetes would take the name is not asked.
    pub fn new(
        kind: Kind,
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> Result<Self, KeyError> {
        let [namespace, name] = [namespace.into(), name.into()].map(String::into_boxed_str);
        let key = Self {
            kind,
            namespace,
            name,
        };
        match key.problem() {
            None => Ok(key),
            Some(problem) => Err(KeyError {
                key: key.to_path(),
                problem,
            }),
        }
    }

    /// Reads a full etcd key. `Ok(None)` for a key outside [`ROOT`] and for the types in it that are not ours, such
    /// as `k8s/policy/…`, `idalloc/…` or `status/gauges`.
    ///
    /// # Errors
    /// When the key is below the folder of one of our types but cannot be the key of an object.
    pub fn parse(path: &str) -> Result<Option<Self>, KeyError> {
        let Some(below_root) = path.strip_prefix(ROOT) else {
            return Ok(None);
        };
        let found = Kind::ALL.into_iter().find_map(|kind| {
            let rest = below_root.strip_prefix(folder(kind))?.strip_prefix('/')?;
            Some((kind, rest))
        });
        let Some((kind, rest)) = found else {
            return Ok(None);
        };

        let mut segments = rest.split('/');
        let segments = [
            segments.next(),
            segments.next(),
            segments.next(),
            segments.next(),
        ];
        let (namespace, name) = match (kind, segments) {
            (Kind::Node | Kind::Namespace | Kind::VppNode, [Some(name), None, ..]) => ("", name),
            (Kind::IpAllocation, [Some(name), Some(namespace), None, _])
            | (
                Kind::Pod
                | Kind::Service
                | Kind::Endpoints
                | Kind::EndpointSlice
                | Kind::ExternalWorkload,
                [Some(name), Some("namespace"), Some(namespace), None],
            ) => (namespace, name),
            _ => {
                let problem = format!("a key of type {kind} has the form {}", form(kind));
                return Err(KeyError {
                    key: path.to_owned(),
                    problem,
                });
            }
        };
        Self::new(kind, namespace, name)
            .map(Some)
            .map_err(|error| KeyError {
                key: path.to_owned(),
                ..error
            })
    }

    /// The full etcd key.
    pub fn to_path(&self) -> String {
        let Self {
            kind,
            namespace,
            name,
        } = self;
        let folder = folder(*kind);
        match kind {
            Kind::Pod
            | Kind::Service
            | Kind::Endpoints
            | Kind::EndpointSlice
            | Kind::ExternalWorkload => {
                format!("{ROOT}{folder}/{name}/namespace/{namespace}")
            }
            Kind::IpAllocation => format!("{ROOT}{folder}/{name}/{namespace}"),
            Kind::Node | Kind::Namespace | Kind::VppNode => format!("{ROOT}{folder}/{name}"),
        }
    }

    /// The prefix of the keys of this type; no other key has it.
    pub fn prefix(kind: Kind) -> String {
        format!("{ROOT}{}/", folder(kind))
    }

    /// The resource type.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Empty for the types that live outside namespaces.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// For [`Kind::VppNode`] the node id as a decimal number above zero.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn problem(&self) -> Option<String> {
        let Self {
            kind,
            namespace,
            name,
        } = self;
        if kind.is_namespaced() {
            if let Some(problem) = part_problem("namespace", namespace) {
                return Some(problem);
            }
        } else if !namespace.is_empty() {
            return Some(format!(
                "a {kind} lives outside namespaces, but {namespace:?} is given as its namespace"
            ));
        }
        // Only the spelling that Contiv's strconv writes: 007 and 7 would be two keys of one node.
        if *kind == Kind::VppNode
            && !name
                .parse::<u32>()
                .is_ok_and(|id| id > 0 && id.to_string() == **name)
        {
            return Some(format!(
                "{name:?} is not a node id, a decimal number from 1 to {}",
                u32::MAX
            ));
        }
        part_problem("name", name)
    }
}

impl fmt::Display for Key {
    /// For people: `service default/web`, `node n1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            namespace,
            name,
        } = self;
        if namespace.is_empty() {
            write!(f, "{kind} {name}")
        } else {
            write!(f, "{kind} {namespace}/{name}")
        }
    }
}

const fn folder(kind: Kind) -> &'static str {
    match kind {
        Kind::Pod => "k8s/pod",
        Kind::Service => "k8s/service",
        Kind::Endpoints => "k8s/endpoints",
        Kind::EndpointSlice => "k8s/endpointslice",
        Kind::ExternalWorkload => "k8s/externalworkload",
        Kind::Node => "k8s/node",
        Kind::Namespace => "k8s/namespace",
        Kind::VppNode => "allocatedIDs",
        Kind::IpAllocation => "custom-ipam",
    }
}

fn form(kind: Kind) -> String {
    Key {
        kind,
        namespace: "<namespace>".into(),
        name: "<name>".into(),
    }
    .to_path()
}

fn part_problem(part: &str, text: &str) -> Option<String> {
    // Fast path: nearly all names are printable ASCII.
    if !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'/')
    {
        None
    } else if text.is_empty() {
        Some(format!("the {part} is empty"))
    } else if text.contains('/') {
        Some(format!("the {part} {text:?} holds a slash"))
    } else if text.contains(char::is_control) {
        Some(format!("the {part} {text:?} holds a control character"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
