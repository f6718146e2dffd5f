//! Validates external workloads. The processor does not use them, only the slices that a controller makes of them.

use contiv_proto::{check, message::externalworkload as proto};

use super::error::{Problems, Validated};

/// Checks the addresses: they become endpoints.
pub(super) fn validate(message: &proto::ExternalWorkload) -> Validated<()> {
    let mut problems = Problems::default();
    for (i, ip) in message.workload_ips.iter().enumerate() {
        problems.address(
            format_args!("spec.workloadIPs[{i}].ip"),
            ip,
            check::routable_address,
        );
    }
    problems.finish(())
}
