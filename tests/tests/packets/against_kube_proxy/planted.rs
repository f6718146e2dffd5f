//! Differences between contiv's services and kube-proxy's rules.

use std::collections::BTreeSet;

use contiv_tests::lab::{Lab, Result};
use serde_json::Value;

use super::{
    cluster::{Condition, Endpoint, Service},
    nftables::Layout,
};

/// A difference in one service.
pub(super) struct Planted {
    pub(super) service: &'static str,
    /// What kube-proxy has.
    pub(super) change: fn(&mut Service),
    /// What is said of it; none of it may be missing.
    pub(super) said: &'static [&'static str],
}

/// Differences by other services, as a kube-proxy has them that missed a change.
pub(super) fn planted() -> Vec<Planted> {
    let differs = |service, change, said| Planted {
        service,
        change,
        said,
    };
    vec![differs(
        "service-024",
        |it| drop(it.endpoints.remove(1)),
        &["kube-proxy lacks 10.244.2.27:8084"],
    )]
}

/// Differences that are no change of a service.
pub(super) fn damage(_lab: &Lab, _layout: Layout) -> Result<()> {
    Ok(())
}

/// Each planted difference is named by its service, and no other service.
pub(super) fn expect_named(planted: &[Planted], _layout: Layout, report: &Value) {
    let differences = report["differences"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut wrong = Vec::new();
    for Planted { service, said, .. } in planted {
        let of_service: BTreeSet<&str> = differences
            .iter()
            .filter(|it| {
                it["service"]["name"] == *service || it["service"] == format!("shop/{service}")
            })
            .filter_map(|it| it["difference"].as_str())
            .collect();
        let expected: BTreeSet<&str> = said.iter().copied().collect();
        if of_service != expected {
            wrong.push(format!("{service}: {of_service:?}, expected {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
