//! The weights of backends.

use contiv_model::{NodeName, Processor, ProcessorConfig, object::Pod};

use crate::builders::*;

fn weighing(weight: u8, pod: Pod) -> Pod {
    Pod { weight, ..pod }
}

#[test]
fn endpoint_has_weight_of_its_pod() {
    let mut processor = mk_processor_with([
        put(weighing(3, mk_pod("default/p1", &["10.1.1.3"]))),
        put(mk_service("default/web", &["10.96.0.1"], &["http:80/tcp"])),
        put(mk_slice(
            "default/web-1",
            "web",
            &[
                ready(of_pod("default/p1", "10.1.1.3")),
                ready(at("10.1.1.4")),
            ],
            &["http:8080/tcp"],
        )),
    ]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 10.1.1.3:8080 x3", "80/tcp -> 10.1.1.4:8080"]
    );
    let changes = processor.apply([put(weighing(5, mk_pod("default/p1", &["10.1.1.3"])))]);
    assert_eq!(changed(&changes), ["default/web"]);
    assert_eq!(
        backends(&processor, "default/web")[0],
        "80/tcp -> 10.1.1.3:8080 x5"
    );

    processor.apply([delete_pod_object("default/p1")]);
    assert_eq!(
        backends(&processor, "default/web")[0],
        "80/tcp -> 10.1.1.3:8080"
    );
}

#[test]
fn endpoints_of_older_form_have_weights_too() {
    let processor = mk_processor_with([
        put(mk_service("default/web", &["10.96.0.1"], &["http:80/tcp"])),
        put(mk_endpoints(
            "default/web",
            &[mk_subset(
                &[of_pod("default/p1", "10.1.1.3")],
                &["http:8080/tcp"],
            )],
        )),
        put(weighing(2, mk_pod("default/p1", &["10.1.1.3"]))),
    ]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 10.1.1.3:8080 x2"]
    );
}

#[test]
fn weight_of_local_endpoints_multiplies_that_of_their_pods() {
    for (local_endpoint_weight, expected) in [(0, 200), (4, 800), (1000, u16::MAX)] {
        let config = ProcessorConfig {
            local_endpoint_weight,
            ..ProcessorConfig::new(NodeName::new(MASTER))
        };
        let mut processor = Processor::new(config);
        let here = contiv_model::object::EndpointAddress {
            pod: Some(pod_id("default/p1")),
            ..on(MASTER, "10.1.1.3")
        };
        processor.apply([
            put(weighing(200, mk_pod("default/p1", &["10.1.1.3"]))),
            put(mk_service("default/web", &["10.96.0.1"], &["http:80/tcp"])),
            put(mk_slice(
                "default/web-1",
                "web",
                &[ready(here)],
                &["http:8080/tcp"],
            )),
        ]);
        let service = processor.service(&service_id("default/web")).unwrap();
        assert_eq!(
            service.ports[0].backends[0].weight, expected,
            "{local_endpoint_weight}"
        );
    }
}

#[test]
fn pod_on_its_way_out_does_not_weigh_for_one_with_its_address() {
    let new = ready(of_pod("default/new", "10.1.1.3"));
    let old = with(of_pod("default/old", "10.1.1.3"), false, true, true);
    for endpoints in [[new.clone(), old.clone()], [old, new]] {
        let processor = mk_processor_with([
            put(weighing(2, mk_pod("default/new", &["10.1.1.3"]))),
            put(weighing(9, mk_pod("default/old", &["10.1.1.3"]))),
            put(mk_service("default/web", &["10.96.0.1"], &["http:80/tcp"])),
            put(mk_slice(
                "default/web-1",
                "web",
                &endpoints,
                &["http:8080/tcp"],
            )),
        ]);
        assert_eq!(
            backends(&processor, "default/web"),
            ["80/tcp -> 10.1.1.3:8080 x2"]
        );
    }
}
