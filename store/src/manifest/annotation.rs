//! The annotations that contiv reads. Others are kept as they are.

use std::collections::BTreeMap;

use contiv_proto::annotation::{self, AnnotationError};

use super::check::Check;

/// Checks those of a service.
pub(super) fn check_service(annotations: &BTreeMap<String, String>, check: &mut Check) {
    for (name, error) in annotation::errors_of_service(annotations) {
        refuse(name, &error, check);
    }
}

/// Checks those of a pod.
pub(super) fn check_pod(annotations: &BTreeMap<String, String>, check: &mut Check) {
    if let Err(error) = annotation::weight(annotations) {
        refuse(annotation::WEIGHT, &error, check);
    }
}

fn refuse(name: &str, error: &AnnotationError, check: &mut Check) {
    check.refuse(
        format_args!("metadata.annotations[{name}]"),
        error.to_string(),
    );
}
