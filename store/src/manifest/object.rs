//! Reads one manifest: determines its kind, and validates it.

use contiv_proto::{Key, Kind};
use serde_json::Value;

use super::{
    check::Check,
    conversion::{Manifest, to_object},
    endpoint_slice::EndpointSlice,
    endpoints::Endpoints,
    external_workload::ExternalWorkload,
    ip_allocation::CustomIpAllocation,
    kind,
    namespace::Namespace,
    node::Node,
    parsed::{ManifestObject, ParsedManifests},
    pod::Pod,
    service::{self, Service},
    strict,
    vpp_node::VppNode,
};
use crate::Problem;

/// Reads one manifest, or each of a list, into `parsed`.
pub(super) fn read(source: &str, mut value: Value, parsed: &mut ParsedManifests) {
    drop_nulls(&mut value);
    let text = |field: &str| {
        value
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if !value.is_object() || kind.is_empty() {
        parsed.is_incomplete = true;
        parsed.problems.push(Problem {
            source: source.to_owned(),
            object: None,
            field: value.is_object().then(|| "kind".to_owned()),
            reason: "this is no Kubernetes object: expected apiVersion and kind".to_owned(),
            is_warning: false,
        });
        return;
    }
    if let Some(item_kind) = kind
        .strip_suffix("List")
        .filter(|_| value.get("spec").is_none())
    {
        return read_list(source, value, &api_version, item_kind, parsed);
    }

    let (namespace, name) = identity(&value);
    let Some(known) = kind::lookup(&api_version, &kind) else {
        match strict::meant_kind(&api_version, &kind) {
            Some((meant, field, reason)) => {
                let reader = Reader {
                    source,
                    kind: meant,
                    title: &kind,
                    value,
                };
                add_failure(reader.failure(vec![(field, reason)]), parsed);
            }
            None => parsed.skipped.push(format!(
                "{source}: {}",
                kind::title_of(&kind, &namespace, &name)
            )),
        }
        return;
    };
    let reader = Reader {
        source,
        kind: known,
        title: &kind,
        value,
    };
    parsed.warnings.extend(reader.warnings(&api_version));
    match reader.read(&api_version) {
        Ok(object) => parsed.objects.push(object),
        Err(failure) => add_failure(failure, parsed),
    }
}

/// The problems of one object.
fn problems(source: &str, object: &str, findings: Vec<(String, String)>) -> Vec<Problem> {
    let problem = |(field, reason)| Problem {
        source: source.to_owned(),
        object: Some(object.to_owned()),
        field: Some(field),
        reason,
        is_warning: false,
    };
    findings.into_iter().map(problem).collect()
}

/// Warnings of one object.
fn warnings(source: &str, object: &str, findings: Vec<(String, String)>) -> Vec<Problem> {
    let mut warnings = problems(source, object, findings);
    for warning in &mut warnings {
        warning.is_warning = true;
    }
    warnings
}

fn add_failure(failure: Failure, parsed: &mut ParsedManifests) {
    match failure.key {
        Some(key) => drop(parsed.broken.insert(key)),
        None => parsed.is_incomplete = true,
    }
    parsed.problems.extend(failure.problems);
}

fn read_list(
    source: &str,
    mut list: Value,
    api_version: &str,
    item_kind: &str,
    parsed: &mut ParsedManifests,
) {
    let unknown = strict::unknown_fields_of_list(&list);
    parsed
        .warnings
        .extend(warnings(source, &format!("{item_kind}List"), unknown));
    let items = match list.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        None => Vec::new(),
        Some(_) => {
            parsed.is_incomplete = true;
            parsed.problems.push(Problem {
                source: source.to_owned(),
                object: Some(format!("{item_kind}List")),
                field: Some("items".to_owned()),
                reason: "expected a list".to_owned(),
                is_warning: false,
            });
            return;
        }
    };
    for (position, mut item) in items.into_iter().enumerate() {
        // As from the API server, the items of a typed list do not repeat their kind.
        if let (Value::Object(fields), false) = (&mut item, item_kind.is_empty()) {
            fields.entry("kind").or_insert_with(|| item_kind.into());
            fields
                .entry("apiVersion")
                .or_insert_with(|| api_version.into());
        }
        read(&format!("{source} items[{position}]"), item, parsed);
        parsed.truncate_problems();
    }
}

/// Namespace and name if available, for any kind.
fn identity(value: &Value) -> (String, String) {
    let field = |name: &str| {
        value["metadata"][name]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    (field("namespace"), field("name"))
}

/// Kubernetes treats `null` like an absent field.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// True if a value contains anything but empty maps.
fn has_content(value: &Value) -> bool {
    value
        .as_object()
        .is_none_or(|fields| fields.values().any(has_content))
}

/// Why an object is not usable.
struct Failure {
    /// The object's identity, if known.
    key: Option<Key>,
    problems: Vec<Problem>,
}

struct Reader<'a> {
    source: &'a str,
    kind: Kind,
    /// The kind's name in the manifest.
    title: &'a str,
    value: Value,
}

impl Reader<'_> {
    /// Fields without effect. The fields of another version are unknown.
    fn warnings(&self, api_version: &str) -> Vec<Problem> {
        let (known_version, _) = kind::manifest_of(self.kind);
        if api_version != known_version {
            return Vec::new();
        }
        let mut findings = strict::unknown_fields(self.kind, &self.value);
        if self.kind == Kind::Service {
            findings.extend(service::fields_without_effect(&self.value));
        }
        warnings(self.source, &self.object_title(), findings)
    }

    fn read(self, api_version: &str) -> Result<ManifestObject, Failure> {
        let (known_version, _) = kind::manifest_of(self.kind);
        if api_version != known_version {
            let reason = format!("{api_version:?} is not known for this kind; use {known_version}");
            return Err(self.failure(vec![("apiVersion".to_owned(), reason)]));
        }
        match self.kind {
            Kind::Pod => self.read_as::<Pod>(),
            Kind::Service => self.read_as::<Service>(),
            Kind::Endpoints => self.read_as::<Endpoints>(),
            Kind::EndpointSlice => self.read_as::<EndpointSlice>(),
            Kind::ExternalWorkload => self.read_as::<ExternalWorkload>(),
            Kind::Node => self.read_as::<Node>(),
            Kind::Namespace => self.read_as::<Namespace>(),
            Kind::VppNode => self.read_as::<VppNode>(),
            Kind::IpAllocation => self.read_as::<CustomIpAllocation>(),
        }
    }

    fn read_as<M: Manifest>(self) -> Result<ManifestObject, Failure> {
        let manifest: M = match serde_path_to_error::deserialize(&self.value) {
            Ok(manifest) => manifest,
            Err(error) => {
                let field = error.path().to_string();
                let reason = error
                    .into_inner()
                    .to_string()
                    .replace("expected i64", "expected a whole number");
                return Err(self.failure(vec![(field, reason)]));
            }
        };
        let mut check = Check::default();
        let object = to_object(manifest, self.kind, &mut check);
        if check.is_refused() {
            return Err(self.failure(check.findings));
        }
        match object.key() {
            Ok(key) => {
                let has_status = self.value.get("status").is_some_and(has_content);
                let unknown_values = self.problems(check.findings);
                Ok(ManifestObject {
                    source: self.source.to_owned(),
                    key,
                    object,
                    has_status,
                    unknown_values,
                })
            }
            Err(error) => Err(self.failure(vec![("metadata.name".to_owned(), error.problem)])),
        }
    }

    /// Namespace and name, with defaults.
    fn identity(&self) -> (String, String) {
        let (mut namespace, name) = identity(&self.value);
        if !self.kind.is_namespaced() {
            namespace.clear();
        } else if namespace.is_empty() {
            "default".clone_into(&mut namespace);
        }
        (namespace, name)
    }

    /// The problems of this object.
    fn problems(&self, findings: Vec<(String, String)>) -> Vec<Problem> {
        problems(self.source, &self.object_title(), findings)
    }

    /// The object, as in "Service default/web".
    fn object_title(&self) -> String {
        let (namespace, name) = self.identity();
        kind::title_of(self.title, &namespace, &name)
    }

    fn failure(&self, findings: Vec<(String, String)>) -> Failure {
        let (namespace, name) = self.identity();
        let problems = self.problems(findings);
        // The key of a VppNode has its number in place of its name.
        let name = match self.kind {
            Kind::VppNode => self.value["spec"]["id"].to_string(),
            _ => name,
        };
        Failure {
            key: Key::new(self.kind, namespace, name).ok(),
            problems,
        }
    }
}
