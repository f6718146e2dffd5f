//! The annotations that contiv reads. Others are kept as they are.

use std::collections::BTreeMap;

use contiv_proto::annotation::{self, AnnotationError};

use super::check::Check;

/// Checks those of a service.
pub(super) fn check_service(annotations: &BTreeMap<String, String>, check: &mut Check) {
    for switch in annotation::OF_SERVICES {
        refuse_if_wrong(switch.name, switch.is_set(annotations), check);
    }
}

/// Checks those of a pod.
pub(super) fn check_pod(annotations: &BTreeMap<String, String>, check: &mut Check) {
    refuse_if_wrong(annotation::WEIGHT, annotation::weight(annotations), check);
}

fn refuse_if_wrong<T>(name: &str, read: Result<T, AnnotationError>, check: &mut Check) {
    if let Err(reason) = read {
        check.refuse(
            format_args!("metadata.annotations[{name}]"),
            reason.to_string(),
        );
    }
}
