use std::net::IpAddr;

use contiv_model::{Backend, ContivService, Protocol, ServiceId, ServicePort};

use super::*;
use crate::logged::logged;

fn at(second: i64) -> Now {
    let time = Timestamp::from_second(second).unwrap();
    Now {
        instant: std::time::Instant::now(),
        time,
        random: 0.0,
    }
}

fn bad(key: &str, reason: &str) -> BadValue {
    let object = Some(ObjectKey::Service(ServiceId::new("default", key)));
    BadValue {
        key: key.to_owned(),
        object,
        reason: reason.to_owned(),
        is_used: false,
        is_empty: false,
    }
}

fn problem(reason: &str) -> Problem {
    let object = Some("Service default/web".to_owned());
    Problem {
        source: "a.yaml".to_owned(),
        object,
        field: None,
        reason: reason.to_owned(),
        is_warning: false,
    }
}

/// Source, time and active state of each listed entry of `web`.
fn summaries(quarantine: &Quarantine) -> Vec<(String, i64, &'static str)> {
    let listed = quarantine.list(0, |object| object.to_string().ends_with("web"));
    listed
        .into_iter()
        .map(|entry| {
            (
                entry.source,
                entry.since.as_second(),
                entry.active_state.unwrap_or(""),
            )
        })
        .collect()
}

#[test]
fn bad_value_keeps_its_time_until_it_is_good() {
    let mut quarantine = Quarantine::default();
    for (second, key, reason) in [(1, "web", "one"), (2, "web", "two"), (3, "db", "one")] {
        quarantine.update_values(vec![ValueStatus::Bad(bad(key, reason))], at(second));
    }
    assert_eq!(
        summaries(&quarantine),
        [("db".into(), 3, "nothing"), ("web".into(), 1, "last good")]
    );
    assert_eq!(quarantine.list(0, |_| true)[1].reason, "two");
    quarantine.update_values(vec![ValueStatus::Good("web".to_owned())], at(4));
    assert_eq!(quarantine.len(), 1);
}

#[test]
fn object_of_api_server_is_listed_once_by_its_name() {
    let mut quarantine = Quarantine::of_store("kube:/etc/kubeconfig");
    let key = "/vnf-agent/contiv-ksr/k8s/service/web/namespace/default";
    let object = Some(ObjectKey::Service(ServiceId::new("default", "web")));
    // The store passes an unusable value on as an empty one, with a separate problem.
    let empty = BadValue {
        object,
        is_empty: true,
        ..bad(key, "is not JSON")
    };
    quarantine.update_values(vec![ValueStatus::Bad(empty)], at(1));
    let field = Some("spec.clusterIP".to_owned());
    let problem = Problem {
        source: key.to_owned(),
        field,
        ..problem("10.96.0.999 is no address")
    };
    quarantine.replace_problems(vec![problem], at(1));
    let listed = quarantine.list(0, |_| true);
    let shown: Vec<_> = listed
        .iter()
        .map(|entry| (entry.source.as_str(), entry.object.as_deref()))
        .collect();
    assert_eq!(shown, [("the API server", Some("Service default/web"))]);
    assert_eq!(
        (quarantine.len(), listed[0].active_state),
        (1, Some("last good"))
    );
    // A problem can also arrive before its value.
    quarantine.replace_values(Vec::new(), at(2));
    assert_eq!(quarantine.len(), 1);
    quarantine.update_values(
        vec![
            ValueStatus::Bad(bad(key, "is not JSON")),
            ValueStatus::Bad(bad("other", "no")),
        ],
        at(2),
    );
    assert_eq!(
        (quarantine.len(), quarantine.list(0, |_| true).len()),
        (2, 2)
    );
    quarantine.update_values(vec![ValueStatus::Good("other".to_owned())], at(2));
    quarantine.replace_problems(Vec::new(), at(2));
    quarantine.update_values(vec![ValueStatus::Good(key.to_owned())], at(2));
    assert_eq!(quarantine.len(), 0);
}

#[test]
fn problem_that_stays_is_logged_once() {
    let lines = logged(|| {
        let mut quarantine = Quarantine::default();
        for second in 1..4 {
            quarantine.replace_problems(vec![problem("is not YAML")], at(second));
        }
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[test]
fn list_is_split_into_pages() {
    let mut quarantine = Quarantine::default();
    let all = 2 * MAX_LISTED + 5;
    let statuses = (0..all).map(|number| ValueStatus::Bad(bad(&format!("{number:06}"), "bad")));
    quarantine.update_values(statuses.collect(), at(1));
    let mut seen = Vec::new();
    loop {
        let page = quarantine.list(seen.len(), |_| true);
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= MAX_LISTED);
        seen.extend(page.into_iter().map(|entry| entry.source));
    }
    assert_eq!(
        seen,
        (0..all)
            .map(|number| format!("{number:06}"))
            .collect::<Vec<_>>()
    );
    assert_eq!(quarantine.len(), all);
}

#[test]
fn last_status_of_a_key_in_a_batch_counts() {
    let mut quarantine = Quarantine::default();
    let good = || ValueStatus::Good("web".to_owned());
    quarantine.update_values(vec![good(), ValueStatus::Bad(bad("web", "one"))], at(1));
    assert_eq!(quarantine.len(), 1);
    quarantine.update_values(vec![ValueStatus::Bad(bad("web", "two")), good()], at(2));
    assert_eq!(quarantine.len(), 0);
}

#[test]
fn list_replaces_values_and_keeps_their_times() {
    let mut quarantine = Quarantine::default();
    quarantine.replace_values(vec![bad("web", "one"), bad("db", "one")], at(1));
    quarantine.replace_values(vec![bad("web", "one"), bad("api", "one")], at(2));
    assert_eq!(
        summaries(&quarantine),
        [("api".into(), 2, "nothing"), ("web".into(), 1, "last good")]
    );
}

#[test]
fn manifest_problems_have_active_state_last_good() {
    let mut quarantine = Quarantine::default();
    quarantine.replace_problems(vec![problem("one")], at(1));
    quarantine.replace_problems(vec![problem("one"), problem("two")], at(2));
    let expected = [
        ("a.yaml".to_owned(), 1, "last good"),
        ("a.yaml".to_owned(), 2, "last good"),
    ];
    assert_eq!(summaries(&quarantine), expected);
    quarantine.replace_problems(Vec::new(), at(3));
    assert_eq!(quarantine.len(), 0);
}

#[test]
fn service_stays_until_a_backend_is_of_its_family() {
    let service = |address: &str, backends: &[&str]| {
        let mut service = ContivService::new(ServiceId::new("default", "web"));
        service.cluster_ips = [address.parse().unwrap()].into_iter().collect();
        let backends = backends
            .iter()
            .map(|it| Backend::new((it.parse::<IpAddr>().unwrap(), 8080).into()));
        let (name, protocol) = ("http".into(), Protocol::Tcp);
        service.ports = vec![ServicePort {
            port: 80,
            protocol,
            name,
            node_port: None,
            backends: backends.collect(),
        }];
        Some(Arc::new(service))
    };
    let mut quarantine = Quarantine::default();
    let change = |quarantine: &mut Quarantine, new, second| {
        let id = ServiceId::new("default", "web");
        quarantine.update_services(&[(id, ServiceChange { old: None, new })].into(), at(second));
    };
    change(&mut quarantine, service("fd00::1", &[]), 1);
    assert_eq!(
        quarantine.len(),
        0,
        "a service without backends is not listed"
    );
    change(
        &mut quarantine,
        service("fd00::1", &["10.1.0.1", "10.1.0.2"]),
        2,
    );
    change(&mut quarantine, service("fd00::1", &["10.1.0.1"]), 3);
    let key = "/vnf-agent/contiv-ksr/k8s/service/web/namespace/default";
    assert_eq!(summaries(&quarantine), [(key.to_owned(), 2, "the rest")]);
    assert!(
        quarantine.list(0, |_| true)[0]
            .reason
            .contains("of the other address family")
    );
    assert_eq!(quarantine.len(), 1);
    change(
        &mut quarantine,
        service("fd00::1", &["10.1.0.1", "fd01::1"]),
        4,
    );
    assert_eq!(quarantine.len(), 0);
    change(&mut quarantine, service("10.96.0.1", &["fd01::1"]), 5);
    assert_eq!(quarantine.len(), 1);
    change(&mut quarantine, None, 6);
    assert_eq!(quarantine.len(), 0);
}

#[test]
fn rejected_service_stays_until_its_renderer_accepts_it() {
    let rejected = |name, reason: &str| Rejected {
        service: ServiceId::new("default", name),
        reason: reason.to_owned(),
        active_state: "nothing",
    };
    let (one, other) = (Arc::from("one"), Arc::from("other"));
    let mut quarantine = Quarantine::default();
    quarantine.replace_rejected(
        &one,
        &[rejected("web", "first"), rejected("db", "first")],
        at(1),
    );
    quarantine.replace_rejected(&other, &[rejected("web", "first")], at(2));
    quarantine.replace_rejected(&one, &[rejected("web", "second")], at(3));
    let expected = [
        ("renderer one".to_owned(), 1, "nothing"),
        ("renderer other".to_owned(), 2, "nothing"),
    ];
    assert_eq!(summaries(&quarantine), expected);
    let listed = quarantine.list(0, |_| true);
    assert_eq!(listed[0].object.as_deref(), Some("service default/web"));
    assert_eq!(listed[0].reason, "second");
    quarantine.replace_rejected(&one, &[], at(4));
    assert_eq!(quarantine.len(), 1);
}

#[test]
fn problem_titles_are_parsed_as_objects() {
    let named = |title| object_of(title).map(|object| object.to_string());
    assert_eq!(
        named("EndpointSlice a/b"),
        Some("endpointslice a/b".to_owned())
    );
    assert_eq!(named("Node n1"), Some("node n1".to_owned()));
    assert_eq!(named("ServiceList"), None);
    assert_eq!(named("ConfigMap a/b"), None);
}

#[test]
fn value_with_problem_of_store_is_logged_once() {
    let key = "/vnf-agent/contiv-ksr/k8s/service/web/namespace/default";
    let store_problem = || Problem {
        source: key.to_owned(),
        ..problem("10.96.0.999 is no address")
    };
    let empty = || BadValue {
        is_empty: true,
        ..bad(key, "is not JSON")
    };
    for value_is_first in [true, false] {
        let mut quarantine = Quarantine::of_store("kube:/etc/kubeconfig");
        let mut step = |is_value: bool, is_bad: bool| match (is_value, is_bad) {
            (true, true) => quarantine.update_values(vec![ValueStatus::Bad(empty())], at(1)),
            (true, false) => {
                quarantine.update_values(vec![ValueStatus::Good(key.to_owned())], at(2));
            }
            (false, is_bad) => {
                let problems = if is_bad {
                    vec![store_problem()]
                } else {
                    Vec::new()
                };
                quarantine.replace_problems(problems, at(if is_bad { 1 } else { 2 }));
            }
        };
        for (is_bad, expected) in [
            (true, "10.96.0.999 is no address"),
            (false, "left the quarantine"),
        ] {
            let lines = logged(|| {
                step(value_is_first, is_bad);
                step(!value_is_first, is_bad);
            });
            assert!(lines.len() == 1 && lines[0].contains(expected), "{lines:?}");
        }
    }
}
