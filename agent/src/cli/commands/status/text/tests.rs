use contiv_model::ServiceId;

use super::*;
use crate::cli::source::views::{LostFrontendView, SizesView};

const NOW: &str = "2026-01-02T03:04:05Z";

/// An overview with this many objects in quarantine and renderers that fail.
fn overview(problems: usize) -> Overview {
    let error = "failed to apply: the kernel refuses the element 10.96.0.1 . tcp . 80, which is a very long sentence";
    let renderer = |name: &str| {
        serde_json::json!({
            "name": name, "state": if problems > 0 { "retrying" } else { "idle" }, "applied_revision": 4711,
            "pending": "nothing", "failures": problems,
            "last_report": {"call": "update", "at": NOW, "duration_ms": 0.4},
            "last_error": (problems > 0).then(|| serde_json::json!({"at": NOW, "error": error})),
        })
    };
    let value = |value| serde_json::from_value(value).unwrap();
    let quarantined = |number| {
        serde_json::from_value(serde_json::json!({
            "source": "/contiv/x", "object": format!("service shop/broken-{number}"), "field": "ports[0].port",
            "reason": error.repeat(2), "active_state": "last good",
        }))
        .unwrap()
    };
    let warning = |number| {
        serde_json::from_value(serde_json::json!({
            "source": "/contiv/x", "object": format!("service shop/web-{number}"), "field": "spec.ports[0].nodePort",
            "reason": error.repeat(2),
        }))
        .unwrap()
    };
    Overview {
        status: serde_json::from_value(serde_json::json!({
            "node": "worker-1", "version": "0.1.0", "store": "etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379",
            "started": "2026-01-01T03:04:05Z", "ready": true, "synced": true, "revision": 4711,
            "store_down": (problems > 0).then(|| serde_json::json!({"since": NOW, "reason": error})),
            "quarantined": problems, "warnings": problems, "events": 12,
        }))
        .unwrap(),
        sizes: SizesView {
            services: 10_000,
            service_ports: 20_000,
            backends: 80_000,
            services_without_backends: problems,
            left_to_other_proxies: problems,
            services_without_address: problems,
            without_address: (0..problems.min(5)).map(|n| ServiceId::new("argo", format!("cd-{n}"))).collect(),
            without_backends: (0..problems.min(5)).map(|n| ServiceId::new("shop", format!("web-{n}"))).collect(),
            services_with_lost_frontends: problems,
            lost_frontends: (0..problems.min(1))
                .map(|_| LostFrontendView {
                    service: ServiceId::new("shop", "second"),
                    frontend: serde_json::from_value("10.96.0.1:80/tcp".into()).unwrap(),
                    holder: ServiceId::new("shop", "first"),
                })
                .collect(),
        },
        renderers: ["nftables", "route", "dry-run"].map(|name| value(renderer(name))).into(),
        quarantine: (0..problems).map(quarantined).collect(),
        warnings: (0..problems).map(warning).collect(),
        connections: Ok((0..9).map(|n| (ServiceId::new("shop", format!("web-{n}")), n)).collect()),
        refused: 0,
        history: Vec::new(),
    }
}

#[test]
fn status_with_many_problems_fits_80_columns_and_24_lines() {
    for problems in [0, 1, 100] {
        let text = render(&overview(problems), Some((24, 80)), NOW.parse().unwrap());
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(
            text.lines().count() <= 24 && longest <= Some(80),
            "{problems}: {longest:?}\n{text}"
        );
        assert!(
            text.contains("worker-1") && text.contains("shop/web-0"),
            "{text}"
        );
    }
}

#[test]
fn first_warnings_are_shown_and_no_reason_for_attention() {
    let mut overview = overview(0);
    let warning = |number: u16| {
        let field = format!("spec.ports[{number}].nodePort");
        let value = serde_json::json!({
            "source": "/contiv/x", "object": "service shop/web", "field": field, "reason": "it has no effect",
        });
        serde_json::from_value(value).unwrap()
    };
    overview.warnings = (0..3).map(warning).collect();
    overview.status.warnings = 3;
    let text = render(&overview, None, NOW.parse().unwrap());
    let expected = "WARNINGS\nservice shop/web: spec.ports[0].nodePort\n  it has no effect\n\
                    service shop/web: spec.ports[1].nodePort\n  it has no effect\nand 1 more: `contiv status -o wide`\n";
    assert!(
        text.contains(expected) && text.contains("0 in quarantine, 3 warnings\n"),
        "{text}"
    );
    assert!(
        overview.is_healthy() && text.contains("agent     ready ("),
        "{text}"
    );
}

#[test]
fn note_of_renderer_is_shown() {
    let mut overview = overview(0);
    let last = overview.renderers[0].last_report.as_mut().unwrap();
    last.notes = vec!["a route of another program is in the way".to_owned()];
    let text = render(&overview, Some((24, 80)), NOW.parse().unwrap());
    assert!(
        text.contains("nftables: a route of another program is in the way\n"),
        "{text}"
    );
}

#[test]
fn forwarding_that_is_off_needs_look() {
    let mut overview = overview(0);
    let off = serde_json::json!([{"ip_family": "IPv6", "setting": "net.ipv6.conf.all.forwarding", "service": "shop/web"}]);
    overview.status.forwarding_off = serde_json::from_value(off).unwrap();
    assert!(!overview.is_healthy());
    let text = render(&overview, None, NOW.parse().unwrap());
    let expected = "net.ipv6.conf.all.forwarding is 0: pods and external clients do not reach backends of shop/web";
    assert!(
        text.contains("ready, but see below") && text.contains(expected),
        "{text}"
    );
}

#[test]
fn backend_that_is_out_is_shown_and_failover_that_fails_needs_look() {
    let mut overview = overview(0);
    let failover = serde_json::json!({"watched": 4, "out": 2, "backends": [
        {"service": "shop/web", "backend": "10.1.0.1:80", "cause": "refused", "since": NOW}]});
    overview.status.failover = serde_json::from_value(failover).unwrap();
    assert!(overview.is_healthy());
    let text = render(&overview, None, NOW.parse().unwrap());
    let expected = "failover  shop/web: backend 10.1.0.1:80 refused a connection (and 1 more)\n";
    assert!(text.contains(expected), "{text}");
    let broken =
        serde_json::json!({"watched": 4, "out": 0, "error": "the kernel lacks nft_dynset"});
    overview.status.failover = serde_json::from_value(broken).unwrap();
    assert!(!overview.is_healthy());
    let text = render(&overview, None, NOW.parse().unwrap());
    assert!(
        text.contains("failover does not work: the kernel lacks nft_dynset\n"),
        "{text}"
    );
}

#[test]
fn full_table_of_the_kernel_needs_look() {
    let mut overview = overview(0);
    let full = serde_json::json!([{"table": "conntrack", "entries": 250_000, "limit": 262_144, "lost": [["full", 12]]}]);
    overview.status.table_problems = serde_json::from_value(full).unwrap();
    assert!(!overview.is_healthy());
    let text = render(&overview, None, NOW.parse().unwrap());
    let expected = "250000 of at most 262144 connections are tracked; 12 times there was no room in the last minutes";
    assert!(
        text.contains("ready, but see below") && text.contains(expected),
        "{text}"
    );
}

#[test]
fn frontend_of_two_services_needs_look() {
    let (good, bad) = (overview(0), overview(1));
    assert!(good.is_healthy());
    let conflict = Overview {
        sizes: bad.sizes,
        ..overview(0)
    };
    assert!(!conflict.is_healthy());
    let text = render(&conflict, None, NOW.parse().unwrap());
    assert!(
        text.contains("shop/second does not get 10.96.0.1:80/tcp, which shop/first holds\n"),
        "{text}"
    );
}

#[test]
fn drift_that_a_verification_found_needs_look() {
    let mut drifted = overview(0);
    let verification =
        serde_json::json!({"verifications": 1, "duration_ms": 1.0, "checked": 120, "drift": 3});
    drifted.renderers[0].verification = serde_json::from_value(verification).unwrap();
    assert!(!drifted.is_healthy());
    let text = render(&drifted, None, NOW.parse().unwrap());
    let expected =
        "nftables: 3 of 120 elements in the kernel are not as they must be; see `contiv verify`\n";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn stored_text_cannot_control_the_terminal() {
    let mut overview = overview(1);
    overview.quarantine[0].reason = "\x1b[2Jgone".to_owned();
    overview.renderers.clear();
    let text = render(&overview, None, NOW.parse().unwrap());
    assert!(text.contains("\\u{1b}[2Jgone"), "{text}");
}

#[test]
fn quarantined_object_shows_field_file_and_state_in_use() {
    let mut overview = overview(1);
    overview.renderers.clear();
    let text = render(&overview, Some((24, 80)), NOW.parse().unwrap());
    let expected = "quarantine: service shop/broken-0: ports[0].port: failed to apply: the kernel r…\n  in /contiv/x; its last good \
                state is in use\n";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn problem_is_shown_in_full_on_a_wide_screen() {
    let (narrow, wide) = (Some((24, 80)), None);
    let now = NOW.parse().unwrap();
    let well = render(&overview(0), narrow, now);
    assert!(
        well.contains("agent     ready (contiv 0.1.0, up 24h)"),
        "{well}"
    );
    assert!(
        !well.contains("quarantine: ") && !well.contains("LAST ERRORS"),
        "{well}"
    );
    let ill = render(&overview(2), wide, now);
    for part in [
        "ready, but see below",
        "down for 0s: failed to apply",
        "refused   no backend behind shop/web-0, shop/web-1\n",
        "unserved  2 services without address and node port: argo/cd-0, argo/cd-1\n",
        "retrying",
        "LAST ERRORS",
        "and 2 more",
    ] {
        assert!(ill.contains(part), "{part} is not in:\n{ill}");
    }
    assert!(!ill.contains('…'), "{ill}");
}
