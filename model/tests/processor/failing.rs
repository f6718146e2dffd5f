//! Backends that do not answer this node's clients.

use contiv_model::{
    Event, FailoverMode, NodeName, Processor, ProcessorConfig,
    object::{Service, ServiceOptions},
};

use crate::builders::*;

fn failing(id: &str, backends: &[&str]) -> Event {
    let backends = backends.iter().map(|backend| backend.parse().unwrap());
    Event::FailingBackends(service_id(id), backends.collect())
}

fn web(failover: Option<FailoverMode>, ports: &[&str]) -> Event {
    let options = ServiceOptions {
        failover,
        ..ServiceOptions::default()
    };
    put(Service {
        options,
        ..mk_service("default/web", &["10.96.0.1"], ports)
    })
}

fn slice(endpoints: &[contiv_model::object::SliceEndpoint]) -> Event {
    put(mk_slice(
        "default/web-1",
        "web",
        endpoints,
        &["http:8080/tcp", "dns:8080/udp"],
    ))
}

const PORTS: &[&str] = &["http:80/tcp", "dns:80/udp"];

#[test]
fn only_ready_backends_of_tcp_ports_become_failing() {
    let mut processor = mk_processor_with([
        web(Some(FailoverMode::On), PORTS),
        slice(&[
            ready(at("10.1.1.1")),
            ready(at("10.1.1.2")),
            with(at("10.1.1.3"), false, true, true),
        ]),
    ]);
    let all = ["10.1.1.1:8080", "10.1.1.3:8080", "10.1.1.9:8080"];
    let changes = processor.apply([failing("default/web", &all)]);
    assert_eq!(changed(&changes), ["default/web"]);
    assert_eq!(
        backends(&processor, "default/web"),
        [
            "80/tcp -> 10.1.1.1:8080 failing",
            "80/tcp -> 10.1.1.2:8080",
            "80/tcp -> 10.1.1.3:8080 terminating",
            "80/udp -> 10.1.1.1:8080",
            "80/udp -> 10.1.1.2:8080",
            "80/udp -> 10.1.1.3:8080 terminating",
        ]
    );
    assert!(
        processor.apply([failing("default/web", &all)]).is_empty(),
        "the same again"
    );
    processor.apply([failing("default/web", &[])]);
    assert!(
        !backends(&processor, "default/web")
            .concat()
            .contains("failing")
    );
}

#[test]
fn backends_fail_only_where_failover_is_on() {
    for (annotation, node, is_failing) in [
        (None, FailoverMode::On, true),
        (None, FailoverMode::Observe, false),
        (None, FailoverMode::Off, false),
        (Some(FailoverMode::Off), FailoverMode::On, false),
        (Some(FailoverMode::Observe), FailoverMode::On, false),
        (Some(FailoverMode::On), FailoverMode::Off, true),
    ] {
        let mut processor = Processor::new(ProcessorConfig {
            failover: node,
            ..ProcessorConfig::new(NodeName::new(MASTER))
        });
        processor.apply([
            web(annotation, PORTS),
            slice(&[ready(at("10.1.1.1"))]),
            failing("default/web", &["10.1.1.1:8080"]),
        ]);
        let service = processor.service(&service_id("default/web")).unwrap();
        assert_eq!(service.failover, annotation.unwrap_or(node));
        assert_eq!(
            backends(&processor, "default/web")[0].contains("failing"),
            is_failing,
            "{annotation:?} {node}"
        );
    }
}

#[test]
fn topology_counts_failing_backend_as_not_ready() {
    let here = || meant_for(at("10.1.1.1"), &[], &["z1"]);
    let elsewhere = || meant_for(at("10.1.1.2"), &[], &["z2"]);
    let mut processor = mk_processor_with([
        put(mk_node_in("z1", MASTER)),
        web(Some(FailoverMode::On), &["http:80/tcp"]),
        slice(&[here(), elsewhere()]),
    ]);
    assert_eq!(
        backends(&processor, "default/web"),
        [
            "80/tcp -> 10.1.1.1:8080",
            "80/tcp -> 10.1.1.2:8080 elsewhere"
        ]
    );
    processor.apply([failing("default/web", &["10.1.1.1:8080"])]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 10.1.1.1:8080 failing", "80/tcp -> 10.1.1.2:8080"]
    );
}

#[test]
fn failing_backend_does_not_change_the_carrier() {
    let routed = |failover| {
        put(Service {
            options: ServiceOptions {
                routed: Some(true),
                failover: Some(failover),
                ..ServiceOptions::default()
            },
            ..mk_service(
                "default/web",
                &["10.96.0.1"],
                &["http:8080:30080/tcp", "more:8081/tcp"],
            )
        })
    };
    let mut processor = mk_processor_with([
        routed(FailoverMode::On),
        put(mk_slice(
            "default/web-1",
            "web",
            &[ready(on(MASTER, "10.1.1.1")), ready(on(MASTER, "10.1.1.2"))],
            &["http:8080/tcp", "more:8081/tcp"],
        )),
    ]);
    let assignment = |processor: &Processor| {
        let service = processor.service(&service_id("default/web")).unwrap();
        service.assignment.clone()
    };
    let before = assignment(&processor);
    assert!(before.addresses.routes(), "{before:?}");
    processor.apply([failing("default/web", &["10.1.1.1:8080"])]);
    assert!(
        backends(&processor, "default/web")[0].ends_with("failing"),
        "for node ports"
    );
    assert_eq!(assignment(&processor), before);
}

#[test]
fn failing_backends_survive_resync_and_absence_of_the_service() {
    let mut processor = mk_processor_with([
        failing("default/web", &["10.1.1.1:8080"]),
        web(Some(FailoverMode::On), &["http:80/tcp"]),
        slice(&[ready(at("10.1.1.1"))]),
    ]);
    let expected = ["80/tcp -> 10.1.1.1:8080 failing"];
    assert_eq!(backends(&processor, "default/web"), expected);
    let objects = [
        mk_service("default/web", &["10.96.0.1"], &["http:80/tcp"]).object(),
        mk_slice(
            "default/web-1",
            "web",
            &[ready(at("10.1.1.1"))],
            &["http:8080/tcp"],
        )
        .object(),
    ];
    processor.resync(mk_resync(objects));
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 10.1.1.1:8080"],
        "the annotation is gone"
    );
    processor.apply([web(Some(FailoverMode::On), &["http:80/tcp"])]);
    assert_eq!(backends(&processor, "default/web"), expected);
}
