//! Tests of the endpoints that become backends. Source: kube-proxy's `endpointslicecache.go`, KEP-1669.

use contiv_model::{
    Event, ObjectKey, ServiceId,
    object::{AddressType, EndpointSlice, Pod, SliceEndpoint},
};

use crate::builders::*;

fn web() -> Event {
    put(mk_service("default/web", &["10.96.0.1"], &["http:80/tcp"]))
}

/// The backends of a service with one port, given the endpoints of one slice.
fn backends_of(endpoints: &[SliceEndpoint]) -> Vec<String> {
    let processor = mk_processor_with([
        web(),
        put(mk_slice(
            "default/web-1",
            "web",
            endpoints,
            &["http:8080/tcp"],
        )),
    ]);
    backends(&processor, "default/web")
}

#[test]
fn slices_win_over_endpoints_even_if_they_are_empty() {
    let mut processor = mk_processor_with([
        web(),
        put(mk_endpoints(
            "default/web",
            &[mk_subset(&[at("10.2.0.1")], &["http:8080/tcp"])],
        )),
    ]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 10.2.0.1:8080"]
    );

    let slice = mk_slice("default/web-1", "web", &[], &["http:8080/tcp"]);
    let key = ObjectKey::EndpointSlice(slice.id.clone());
    processor.apply([put(slice)]);
    assert!(backends(&processor, "default/web").is_empty());

    processor.apply([Event::Delete(key)]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 10.2.0.1:8080"]
    );
}

#[test]
fn external_workload_slices_add_to_endpoints() {
    let pods = put(mk_endpoints(
        "default/web",
        &[mk_subset(&[at("10.2.0.1")], &["http:8080/tcp"])],
    ));
    let external = |endpoints: &[SliceEndpoint]| {
        let slice = mk_slice("default/web-vm", "web", endpoints, &["http:9090/tcp"]);
        put(EndpointSlice {
            is_supplement: true,
            ..slice
        })
    };
    let mut processor = mk_processor_with([web(), pods]);
    let pod = "80/tcp -> 10.2.0.1:8080";
    for none_ready in [&[][..], &[with(at("192.0.2.7"), false, false, false)]] {
        processor.apply([external(none_ready)]);
        assert_eq!(backends(&processor, "default/web"), [pod], "{none_ready:?}");
    }
    processor.apply([external(&[ready(at("192.0.2.7"))])]);
    assert_eq!(
        backends(&processor, "default/web"),
        [pod, "80/tcp -> 192.0.2.7:9090"]
    );

    // Slices of pods replace endpoints in any case.
    processor.apply([put(mk_slice(
        "default/web-1",
        "web",
        &[ready(at("10.2.0.2"))],
        &["http:8080/tcp"],
    ))]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 10.2.0.2:8080", "80/tcp -> 192.0.2.7:9090"]
    );
}

#[test]
fn slice_of_names_does_not_win_over_endpoints() {
    let names = EndpointSlice {
        address_type: AddressType::Fqdn,
        ..mk_slice("default/web-n", "web", &[], &["http:80/tcp"])
    };
    let processor = mk_processor_with([
        web(),
        put(names),
        put(mk_endpoints(
            "default/web",
            &[mk_subset(&[at("10.2.0.1")], &["http:8080/tcp"])],
        )),
    ]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 10.2.0.1:8080"]
    );
}

#[test]
fn slice_labelled_for_no_proxy_is_ignored() {
    let headless = EndpointSlice {
        service: None,
        ..mk_slice(
            "default/web-h",
            "web",
            &[ready(at("10.2.0.9"))],
            &["http:8080/tcp"],
        )
    };
    let processor = mk_processor_with([web(), put(headless)]);
    assert!(backends(&processor, "default/web").is_empty());
}

#[test]
fn several_slices_add_up_and_may_have_different_target_ports() {
    let processor = mk_processor_with([
        web(),
        put(mk_slice(
            "default/web-1",
            "web",
            &[ready(at("10.2.0.1"))],
            &["http:8080/tcp"],
        )),
        put(mk_slice(
            "default/web-2",
            "web",
            &[ready(at("10.2.0.2"))],
            &["http:9090/tcp"],
        )),
    ]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 10.2.0.1:8080", "80/tcp -> 10.2.0.2:9090"]
    );
}

#[test]
fn slice_moved_to_another_service_leaves_the_first() {
    let slice = mk_slice(
        "default/s",
        "web",
        &[ready(at("10.2.0.1"))],
        &["http:8080/tcp"],
    );
    let mut processor = mk_processor_with([
        web(),
        put(mk_service("default/api", &["10.96.0.2"], &["http:80/tcp"])),
        put(slice.clone()),
    ]);
    let moved = EndpointSlice {
        service: Some(ServiceId::new("default", "api")),
        ..slice
    };
    let changes = processor.apply([put(moved)]);
    assert_eq!(changed(&changes), ["default/api", "default/web"]);
    assert!(backends(&processor, "default/web").is_empty());
    assert_eq!(
        backends(&processor, "default/api"),
        ["80/tcp -> 10.2.0.1:8080"]
    );
}

#[test]
fn ports_are_matched_by_name_and_protocol() {
    let processor = mk_processor_with([
        put(mk_service(
            "default/dns",
            &["10.96.0.10"],
            &["dns:53/tcp", "dns:53/udp", "dns:53/sctp"],
        )),
        put(mk_slice(
            "default/dns-1",
            "dns",
            &[ready(at("10.2.0.1"))],
            &["dns:5301/tcp", "dns:5302/udp", "x:1/sctp"],
        )),
    ]);
    assert_eq!(
        backends(&processor, "default/dns"),
        ["53/tcp -> 10.2.0.1:5301", "53/udp -> 10.2.0.1:5302"]
    );
}

#[test]
fn endpoint_is_used_if_ready_or_serving_while_terminating() {
    let used = |ready, serving, terminating| {
        backends_of(&[with(at("10.2.0.1"), ready, serving, terminating)])
    };
    let ready = ["80/tcp -> 10.2.0.1:8080"];
    let terminating = ["80/tcp -> 10.2.0.1:8080 terminating"];

    assert_eq!(used(true, true, false), ready);
    assert_eq!(used(true, false, false), ready);
    // With publishNotReadyAddresses the endpoints controller marks a terminating pod as ready.
    assert_eq!(used(true, true, true), ready);
    assert_eq!(used(false, true, true), terminating);
    assert!(used(false, true, false).is_empty(), "not ready");
    assert!(
        used(false, false, true).is_empty(),
        "terminating and no longer serving"
    );
    assert!(used(false, false, false).is_empty());
}

#[test]
fn duplicate_endpoints_keep_the_one_that_stays() {
    let stays = with(at("10.2.0.1"), true, true, false);
    let goes = with(at("10.2.0.1"), false, true, true);
    for endpoints in [[stays.clone(), goes.clone()], [goes.clone(), stays]] {
        assert_eq!(backends_of(&endpoints), ["80/tcp -> 10.2.0.1:8080"]);
    }
    // It counts even if it cannot be used itself, as in kube-proxy.
    let not_ready = with(at("10.2.0.1"), false, false, false);
    for endpoints in [[not_ready.clone(), goes.clone()], [goes.clone(), not_ready]] {
        assert!(backends_of(&endpoints).is_empty());
    }
}

#[test]
fn duplicate_endpoints_are_local_if_one_is() {
    let here = ready(on(MASTER, "10.2.0.1"));
    let unknown = ready(at("10.2.0.1"));
    for endpoints in [
        [here.clone(), unknown.clone()],
        [unknown.clone(), here.clone()],
    ] {
        assert_eq!(backends_of(&endpoints), ["80/tcp -> 10.2.0.1:8080 local"]);
    }
}

#[test]
fn duplicate_endpoints_are_host_network_if_one_is() {
    let host_pod = Pod {
        host_network: true,
        ..mk_pod("default/p", &["192.168.1.9"])
    };
    let known = ready(of_pod("default/p", "192.168.1.9"));
    let unknown = ready(at("192.168.1.9"));
    for endpoints in [
        [known.clone(), unknown.clone()],
        [unknown.clone(), known.clone()],
    ] {
        let slice = mk_slice("default/web-1", "web", &endpoints, &["http:8080/tcp"]);
        let processor = mk_processor_with([web(), put(host_pod.clone()), put(slice)]);
        assert_eq!(
            backends(&processor, "default/web"),
            ["80/tcp -> 192.168.1.9:8080 host-network"]
        );
    }
}

#[test]
fn duplicates_across_slices_and_subsets_are_one_backend() {
    let mut processor = mk_processor_with([
        web(),
        put(mk_endpoints(
            "default/web",
            &[
                mk_subset(&[at("10.2.0.1")], &["http:8080/tcp"]),
                mk_subset(&[at("10.2.0.1")], &["http:8080/tcp"]),
            ],
        )),
    ]);
    assert_eq!(backends(&processor, "default/web").len(), 1);
    processor.apply([
        put(mk_slice(
            "default/web-1",
            "web",
            &[ready(at("10.2.0.1"))],
            &["http:8080/tcp"],
        )),
        put(mk_slice(
            "default/web-2",
            "web",
            &[ready(at("10.2.0.1"))],
            &["http:8080/tcp"],
        )),
    ]);
    assert_eq!(backends(&processor, "default/web").len(), 1);
}

#[test]
fn both_families_stand_behind_one_service() {
    let v6 = EndpointSlice {
        address_type: AddressType::Ipv6,
        ..mk_slice(
            "default/web-6",
            "web",
            &[ready(at("fd00:2::1"))],
            &["http:8080/tcp"],
        )
    };
    let processor = mk_processor_with([
        put(mk_service(
            "default/web",
            &["10.96.0.1", "fd00::1"],
            &["http:80/tcp"],
        )),
        put(v6),
        put(mk_slice(
            "default/web-4",
            "web",
            &[ready(at("10.2.0.1"))],
            &["http:8080/tcp"],
        )),
    ]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 10.2.0.1:8080", "80/tcp -> [fd00:2::1]:8080"]
    );
}

#[test]
fn change_names_only_service_it_is_about() {
    let mut processor = mk_processor_with([
        web(),
        put(mk_service("other/web", &["10.96.0.2"], &["http:80/tcp"])),
        put(mk_slice(
            "other/web-1",
            "web",
            &[ready(at("10.2.0.7"))],
            &["http:8080/tcp"],
        )),
    ]);
    let slice = mk_slice(
        "default/web-1",
        "web",
        &[ready(at("10.2.0.1"))],
        &["http:8080/tcp"],
    );
    assert_eq!(changed(&processor.apply([put(slice)])), ["default/web"]);
}
