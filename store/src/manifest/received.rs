//! Parses single objects of an API server, whose kind is known, and which are nearly always valid.

use contiv_proto::{Kind, Object};
use serde_json::Value;

use super::{
    check::Check,
    conversion::{Manifest, to_object},
    endpoint_slice::EndpointSlice,
    endpoints::Endpoints,
    external_workload::ExternalWorkload,
    kind,
    namespace::Namespace,
    node::Node,
    object,
    parsed::ParsedManifests,
    pod::Pod,
    service::Service,
};
use crate::Problem;

/// Parses one object of `kind`; `source` is its name in problems.
///
/// # Errors
/// Its problems.
pub(crate) fn parse_object(source: &str, kind: Kind, json: &str) -> Result<Object, Vec<Problem>> {
    // Deserialized directly into the kept fields: dropped ones are never in memory.
    let read = match kind {
        Kind::Pod => direct::<Pod>(kind, json),
        Kind::Service => direct::<Service>(kind, json),
        Kind::Endpoints => direct::<Endpoints>(kind, json),
        Kind::EndpointSlice => direct::<EndpointSlice>(kind, json),
        Kind::Node => direct::<Node>(kind, json),
        Kind::Namespace => direct::<Namespace>(kind, json),
        Kind::ExternalWorkload => direct::<ExternalWorkload>(kind, json),
        // The API server does not have them.
        _ => None,
    };
    match read {
        Some(object) => Ok(object),
        None => decode_leniently(source, kind, json),
    }
}

fn direct<M: Manifest>(kind: Kind, json: &str) -> Option<Object> {
    let manifest: M = serde_json::from_str(json).ok()?;
    let mut check = Check::default();
    let object = to_object(manifest, kind, &mut check);
    (!check.is_refused()).then_some(object)
}

/// The slow path of manifests: it accepts `null` fields, as sent for empty lists, and reports where an error is.
fn decode_leniently(source: &str, kind: Kind, json: &str) -> Result<Object, Vec<Problem>> {
    let problem = |reason: String| Problem {
        source: source.to_owned(),
        object: None,
        field: None,
        reason,
        is_warning: false,
    };
    let mut value: Value =
        serde_json::from_str(json).map_err(|error| vec![problem(error.to_string())])?;
    if let Some(fields) = value.as_object_mut() {
        // The items of a list do not repeat their kind.
        let (api_version, kind) = kind::manifest_of(kind);
        fields.insert("apiVersion".to_owned(), api_version.into());
        fields.insert("kind".to_owned(), kind.into());
    }
    let mut parsed = ParsedManifests::default();
    object::read(source, value, &mut parsed);
    match parsed.objects.pop() {
        Some(read) => Ok(read.object),
        None => Err(parsed.problems),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: &str = r#"{"metadata":{"name":"web-1","namespace":"default","managedFields":[{"manager":"x"}],
        "labels":{"kubernetes.io/service-name":"web"}},"addressType":"IPv4","endpoints":ENDPOINTS,"ports":[]}"#;

    fn slice(endpoints: &str) -> Result<Object, Vec<Problem>> {
        parse_object(
            "here",
            Kind::EndpointSlice,
            &SLICE.replace("ENDPOINTS", endpoints),
        )
    }

    #[test]
    fn null_is_same_as_empty_list() {
        assert_eq!(slice("null").unwrap(), slice("[]").unwrap());
    }

    #[test]
    fn fault_is_named_with_its_field() {
        let problems = slice(r#"[{"addresses":["10.0.0.999"]}]"#).unwrap_err();
        assert_eq!(problems.len(), 1);
        let text = problems[0].to_string();
        assert!(
            text.starts_with("here: EndpointSlice default/web-1: endpoints[0].addresses[0]"),
            "{text}"
        );
    }

    #[test]
    fn wrong_type_is_named_with_its_field() {
        let problems = slice("7").unwrap_err();
        assert_eq!(problems[0].field.as_deref(), Some("endpoints"));
    }
}
