//! Unknown fields and kinds, usually typing errors: an API server drops such a field, and refuses such a kind.
//!
//! Known are all fields of Kubernetes 1.34, also those that contiv does not use. Fields that people do not write themselves (a
//! pod's `spec`, most of a `status`) are not checked.

use std::fmt::Write as _;

use contiv_proto::Kind;
use serde_json::{Map, Value};

use super::kind;

/// The fields of an object.
struct Fields {
    /// Fields whose content is not checked.
    plain: &'static [&'static str],
    nested: &'static [(&'static str, Nested)],
}

enum Nested {
    /// An object.
    One(&'static Fields),
    /// A list of objects.
    Each(&'static Fields),
}

use Nested::{Each, One};

impl Fields {
    const fn plain(plain: &'static [&'static str]) -> Self {
        Self { plain, nested: &[] }
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.plain
            .iter()
            .copied()
            .chain(self.nested.iter().map(|(name, _)| *name))
    }
}

/// Fields of every object.
const HEAD: [&str; 2] = ["apiVersion", "kind"];

static METADATA: Fields = Fields::plain(&[
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
]);

static REFERENCE: Fields = Fields::plain(&[
    "apiVersion",
    "fieldPath",
    "kind",
    "name",
    "namespace",
    "resourceVersion",
    "uid",
]);

static SERVICE: Fields = Fields {
    plain: &[],
    nested: &[
        ("metadata", One(&METADATA)),
        ("spec", One(&SERVICE_SPEC)),
        ("status", One(&SERVICE_STATUS)),
    ],
};
static SERVICE_SPEC: Fields = Fields {
    plain: &[
        "allocateLoadBalancerNodePorts",
        "clusterIP",
        "clusterIPs",
        "externalIPs",
        "externalName",
        "externalTrafficPolicy",
        "healthCheckNodePort",
        "internalTrafficPolicy",
        "ipFamilies",
        "ipFamilyPolicy",
        "loadBalancerClass",
        "loadBalancerIP",
        "loadBalancerSourceRanges",
        "publishNotReadyAddresses",
        "selector",
        "sessionAffinity",
        "trafficDistribution",
        "type",
    ],
    nested: &[
        ("ports", Each(&SERVICE_PORT)),
        ("sessionAffinityConfig", One(&AFFINITY)),
    ],
};
static SERVICE_PORT: Fields = Fields::plain(&[
    "appProtocol",
    "name",
    "nodePort",
    "port",
    "protocol",
    "targetPort",
]);
static AFFINITY: Fields = Fields {
    plain: &[],
    nested: &[("clientIP", One(&Fields::plain(&["timeoutSeconds"])))],
};
static SERVICE_STATUS: Fields = Fields {
    plain: &["conditions"],
    nested: &[(
        "loadBalancer",
        One(&Fields {
            plain: &[],
            nested: &[("ingress", Each(&INGRESS))],
        }),
    )],
};
static INGRESS: Fields = Fields::plain(&["hostname", "ip", "ipMode", "ports"]);

static SLICE: Fields = Fields {
    plain: &["addressType"],
    nested: &[
        ("metadata", One(&METADATA)),
        ("endpoints", Each(&ENDPOINT)),
        ("ports", Each(&Fields::plain(&ENDPOINT_PORT))),
    ],
};
const ENDPOINT_PORT: [&str; 4] = ["appProtocol", "name", "port", "protocol"];
static ENDPOINT: Fields = Fields {
    plain: &[
        "addresses",
        "deprecatedTopology",
        "hostname",
        "nodeName",
        "zone",
    ],
    nested: &[
        (
            "conditions",
            One(&Fields::plain(&["ready", "serving", "terminating"])),
        ),
        ("hints", One(&HINTS)),
        ("targetRef", One(&REFERENCE)),
    ],
};
static HINTS: Fields = Fields {
    plain: &[],
    nested: &[
        ("forNodes", Each(&Fields::plain(&["name"]))),
        ("forZones", Each(&Fields::plain(&["name"]))),
    ],
};

static ENDPOINTS: Fields = Fields {
    plain: &[],
    nested: &[("metadata", One(&METADATA)), ("subsets", Each(&SUBSET))],
};
static SUBSET: Fields = Fields {
    plain: &[],
    nested: &[
        ("addresses", Each(&ENDPOINT_ADDRESS)),
        ("notReadyAddresses", Each(&ENDPOINT_ADDRESS)),
        ("ports", Each(&Fields::plain(&ENDPOINT_PORT))),
    ],
};
static ENDPOINT_ADDRESS: Fields = Fields {
    plain: &["hostname", "ip", "nodeName"],
    nested: &[("targetRef", One(&REFERENCE))],
};

static NODE: Fields = Fields {
    plain: &[],
    nested: &[
        ("metadata", One(&METADATA)),
        ("spec", One(&NODE_SPEC)),
        ("status", One(&NODE_STATUS)),
    ],
};
static NODE_SPEC: Fields = Fields::plain(&[
    "configSource",
    "externalID",
    "podCIDR",
    "podCIDRs",
    "providerID",
    "taints",
    "unschedulable",
]);
static NODE_STATUS: Fields = Fields {
    plain: &[
        "allocatable",
        "capacity",
        "conditions",
        "config",
        "daemonEndpoints",
        "declaredFeatures",
        "features",
        "images",
        "nodeInfo",
        "phase",
        "runtimeHandlers",
        "volumesAttached",
        "volumesInUse",
    ],
    nested: &[("addresses", Each(&Fields::plain(&["address", "type"])))],
};

/// Kinds that people do not write themselves.
static OTHER: Fields = Fields {
    plain: &["spec", "status"],
    nested: &[("metadata", One(&METADATA))],
};

static EXTERNAL_WORKLOAD: Fields = Fields {
    plain: &["status"],
    nested: &[
        ("metadata", One(&METADATA)),
        ("spec", One(&EXTERNAL_WORKLOAD_SPEC)),
    ],
};
static EXTERNAL_WORKLOAD_SPEC: Fields = Fields {
    plain: &[],
    nested: &[
        ("meshTLS", One(&Fields::plain(&["identity", "serverName"]))),
        ("ports", Each(&Fields::plain(&["name", "port", "protocol"]))),
        ("workloadIPs", Each(&Fields::plain(&["ip"]))),
    ],
};

static LIST: Fields = Fields::plain(&["items", "metadata"]);

const fn fields_of(kind: Kind) -> &'static Fields {
    match kind {
        Kind::Service => &SERVICE,
        Kind::EndpointSlice => &SLICE,
        Kind::Endpoints => &ENDPOINTS,
        Kind::Node => &NODE,
        Kind::ExternalWorkload => &EXTERNAL_WORKLOAD,
        Kind::Pod | Kind::Namespace | Kind::VppNode | Kind::IpAllocation => &OTHER,
    }
}

/// The unknown fields of a manifest, each with advice.
pub(super) fn unknown_fields(kind: Kind, manifest: &Value) -> Vec<(String, String)> {
    search(fields_of(kind), manifest)
}

/// The unknown fields of a list itself.
pub(super) fn unknown_fields_of_list(list: &Value) -> Vec<(String, String)> {
    search(&LIST, list)
}

fn search(fields: &Fields, manifest: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    if let Value::Object(object) = manifest {
        collect_unknown(fields, &HEAD, object, &mut String::new(), &mut found);
    }
    found
}

/// `path` is the path of `object`. It is unchanged afterwards.
fn collect_unknown(
    fields: &Fields,
    also: &[&'static str],
    object: &Map<String, Value>,
    path: &mut String,
    found: &mut Vec<(String, String)>,
) {
    let end = path.len();
    for (name, value) in object {
        let dot = if end == 0 { "" } else { "." };
        // Writing to a `String` cannot fail.
        let _ = write!(path, "{dot}{name}");
        match (fields.nested.iter().find(|(known, _)| known == name), value) {
            (Some((_, One(inner))), Value::Object(object)) => {
                collect_unknown(inner, &[], object, path, found);
            }
            (Some((_, Each(inner))), Value::Array(items)) => {
                let field = path.len();
                for (i, item) in items.iter().enumerate() {
                    let _ = write!(path, "[{i}]");
                    if let Value::Object(object) = item {
                        collect_unknown(inner, &[], object, path, found);
                    }
                    path.truncate(field);
                }
            }
            // A wrong type is reported by the deserializer.
            (Some(_), _) => {}
            (None, _) if fields.plain.contains(&name.as_str()) || also.contains(&name.as_str()) => {
            }
            (None, _) => {
                let mut reason = "there is no such field, and it has no effect".to_owned();
                if let Some(near) = nearest(name, fields.names().chain(also.iter().copied())) {
                    let _ = write!(reason, "; did you mean {near}?");
                }
                found.push((path.clone(), reason));
            }
        }
        path.truncate(end);
    }
}

/// The kind that was probably meant by an unknown kind, and the problem.
pub(super) fn meant_kind(api_version: &str, kind: &str) -> Option<(Kind, String, String)> {
    let group = kind::group(api_version);
    let of_group = |known: &Kind| kind::group(kind::manifest_of(*known).0) == group;
    if !Kind::ALL.iter().any(of_group) {
        // Any group may have a kind with this name: Knative has a Service.
        return None;
    }
    if let Some(known) = Kind::ALL
        .into_iter()
        .find(|known| kind::manifest_of(*known).1 == kind)
    {
        let (right, _) = kind::manifest_of(known);
        let reason = format!("{api_version:?} has no kind {kind}; use {right}");
        return Some((known, "apiVersion".to_owned(), reason));
    }
    let names = Kind::ALL
        .into_iter()
        .filter(of_group)
        .map(|known| kind::manifest_of(known).1);
    let near = nearest(kind, names)?;
    let known = kind::lookup(api_version, near)?;
    Some((
        known,
        "kind".to_owned(),
        format!("{api_version:?} has no kind {kind:?}; did you mean {near}?"),
    ))
}

/// The candidate that a name probably means: a third of its letters may differ, or their case.
fn nearest(name: &str, candidates: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let lower = name.to_lowercase();
    let distance = |candidate: &str| strsim::damerau_levenshtein(&lower, &candidate.to_lowercase());
    candidates
        .map(|candidate| (distance(candidate), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len().min(name.len()) / 3)
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use contiv_proto::Key;

    use super::super::{ParsedManifests, parse_file};

    fn parse(text: &str) -> ParsedManifests {
        parse_file("web.yaml", text)
    }

    fn warnings(text: &str) -> Vec<String> {
        parse(text)
            .warnings
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn unknown_field_is_warning_with_suggestion() {
        let text = "apiVersion: v1\nkind: Service\nmetadata: {name: web, lables: {a: b}}\n\
                    spec: {clusterIp: 10.96.0.1, ports: [{port: 53, protocl: UDP}], colour: red}\n";
        assert_eq!(
            warnings(text),
            [
                "web.yaml: Service default/web: metadata.lables: there is no such field, and it has no effect; \
                 did you mean labels?",
                "web.yaml: Service default/web: spec.clusterIp: there is no such field, and it has no effect; \
                 did you mean clusterIP?",
                "web.yaml: Service default/web: spec.colour: there is no such field, and it has no effect",
                "web.yaml: Service default/web: spec.ports[0].protocl: there is no such field, and it has no \
                 effect; did you mean protocol?",
            ]
        );
        let parsed = parse(text);
        assert_eq!(
            (parsed.objects.len(), parsed.problems.as_slice()),
            (1, &[][..]),
            "it is used all the same"
        );
    }

    #[test]
    fn unknown_fields_of_other_kinds_are_found() {
        for (text, field) in [
            (
                "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: w}, addressType: IPv4, endpoints: [{addresses: [10.0.0.1], nodename: a}]}",
                "endpoints[0].nodename",
            ),
            (
                "{apiVersion: v1, kind: Endpoints, metadata: {name: w}, subsets: [{addresses: [{ip: 10.0.0.1, node: a}]}]}",
                "subsets[0].addresses[0].node",
            ),
            (
                "{apiVersion: v1, kind: Node, metadata: {name: w}, spec: {podCidr: 10.0.0.0/24}}",
                "spec.podCidr",
            ),
            (
                "{apiVersion: v1, kind: Pod, metadata: {name: w}, stauts: {}}",
                "stauts",
            ),
            ("{apiVersion: v1, kind: List, itmes: []}", "itmes"),
        ] {
            let warnings = parse(text).warnings;
            assert_eq!(
                warnings
                    .iter()
                    .map(|it| it.field.as_deref().unwrap())
                    .collect::<Vec<_>>(),
                [field],
                "{text}"
            );
        }
    }

    #[test]
    fn fields_that_exist_are_no_warning() {
        let text = r"
apiVersion: v1
kind: Service
metadata: {name: web, uid: x, managedFields: [{manager: kubectl}], ownerReferences: [{name: x}]}
spec:
  type: LoadBalancer
  allocateLoadBalancerNodePorts: false
  clusterIPs: [10.96.0.1]
  ports: [{name: a, port: 80, appProtocol: http, targetPort: 8080, nodePort: 30080, protocol: TCP}]
  selector: {anything: goes}
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 5}}
  trafficDistribution: PreferClose
status: {loadBalancer: {ingress: [{ip: 192.0.2.1, ipMode: VIP, ports: [{port: 80, protocol: TCP}]}]}}
";
        assert_eq!(warnings(text), [""; 0]);
    }

    #[test]
    fn field_that_does_not_belong_to_its_service_is_warning() {
        let of = |spec: &str| {
            warnings(&format!(
                "{{apiVersion: v1, kind: Service, metadata: {{name: web}}, spec: {{{spec}}}}}"
            ))
        };
        let affinity = "sessionAffinityConfig: {clientIP: {timeoutSeconds: 5}}";
        assert_eq!(
            of("allocateLoadBalancerNodePorts: false"),
            [
                "web.yaml: Service default/web: spec.allocateLoadBalancerNodePorts: it has no effect: it is for services of \
              type LoadBalancer, and this one is of type ClusterIP"
            ]
        );
        assert_eq!(
            of(affinity),
            [
                "web.yaml: Service default/web: spec.sessionAffinityConfig: it has no effect: it is for sessionAffinity \
              ClientIP, and that is None here"
            ]
        );
        assert_eq!(
            of("type: LoadBalancer, allocateLoadBalancerNodePorts: false"),
            [""; 0]
        );
        assert_eq!(
            of(&format!("sessionAffinity: ClientIP, {affinity}")),
            [""; 0]
        );
    }

    #[test]
    fn unknown_kind_is_problem_with_suggestion() {
        let of = |version: &str, kind: &str| {
            parse(&format!(
                "{{apiVersion: {version}, kind: {kind}, metadata: {{name: web}}}}"
            ))
        };
        for (version, kind, reason) in [
            (
                "v1",
                "Servce",
                "\"v1\" has no kind \"Servce\"; did you mean Service?",
            ),
            ("v1", "service", "did you mean Service?"),
            ("v1", "Endpoint", "did you mean Endpoints?"),
            (
                "discovery.k8s.io/v1",
                "EndpointSlices",
                "did you mean EndpointSlice?",
            ),
            (
                "v1",
                "EndpointSlice",
                "\"v1\" has no kind EndpointSlice; use discovery.k8s.io/v1",
            ),
        ] {
            let parsed = of(version, kind);
            let [problem] = parsed.problems.as_slice() else {
                panic!("{kind}: {parsed:?}")
            };
            assert!(problem.to_string().contains(reason), "{problem}");
            assert_eq!(
                problem.object.as_deref(),
                Some(&*format!("{kind} default/web"))
            );
            // Its previous state stays.
            assert_eq!(
                parsed.broken.iter().map(Key::name).collect::<Vec<_>>(),
                ["web"]
            );
            assert!(!parsed.is_incomplete && parsed.skipped.is_empty());
        }
        for (version, kind) in [
            ("v1", "Secret"),
            ("v1", "ServiceAccount"),
            ("v1", "Event"),
            ("apps/v1", "Deployment"),
            ("serving.knative.dev/v1", "Service"),
            ("example.com/v1", "Servce"),
        ] {
            let parsed = of(version, kind);
            assert_eq!(
                (parsed.problems.len(), parsed.skipped.len()),
                (0, 1),
                "{version} {kind}"
            );
        }
    }
}
