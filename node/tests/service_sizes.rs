//! The sizes that a node reports of its services: that they are right, and that they cost no copy of the services.

#![expect(clippy::expect_used, reason = "a test that cannot go on fails")]

use std::time::{Duration, Instant};

use contiv_model::{NodeName, ProcessorConfig};
use contiv_node::{
    Core, CoreConfig, GuardConfig, HistoryLimits, VerificationConfig,
    decode::Decoder,
    message::{Input, Now},
    metrics::ServiceSizes,
};
use contiv_proto::{Key, Kind};
use contiv_store::{Entry, FeedEvent, Snapshot};
use jiff::Timestamp;

const SERVICES: usize = 2000;

fn entry(kind: Kind, name: &str, value: String) -> Entry {
    let key = Key::new(kind, "default", name)
        .expect("a good name")
        .to_path();
    Entry {
        key,
        value: value.into(),
        create_revision: 1,
        mod_revision: 1,
    }
}

fn service(number: usize) -> Entry {
    let (high, low) = (number / 250, number % 250 + 1);
    let value = format!(
        r#"{{"cluster_ip":"10.96.{high}.{low}","port":[{{"name":"http","protocol":"TCP","port":80}}]}}"#
    );
    entry(Kind::Service, &format!("s{number:05}"), value)
}

/// A node that has listed a store with these entries.
fn node_with(entries: Vec<Entry>) -> Core {
    let now = Now {
        instant: Instant::now(),
        time: Timestamp::UNIX_EPOCH,
        random: 0.5,
    };
    let config = CoreConfig {
        store: "dir:/test".to_owned(),
        processor: ProcessorConfig::new(NodeName::new("n1")),
        has_mirror: false,
        local_addresses: [].into(),
        local_interfaces: [].into(),
        attached: [].into(),
        guard: GuardConfig {
            percent: 0,
            wait: Duration::ZERO,
        },
        verification: VerificationConfig::default(),
        history: HistoryLimits {
            events: 10,
            age: Duration::from_secs(60),
            bytes: 1 << 20,
        },
        renderers: Vec::new(),
        verified_renderers: Vec::new(),
        traffic_renderer: "nftables".into(),
        self_check: None,
    };
    let mut core = Core::new(config, now);
    let list = FeedEvent::Snapshot(Snapshot {
        revision: 7,
        entries,
        problems: Vec::new(),
    });
    let event = Decoder::new(now.time).decode(list).expect("a list");
    core.handle(Input::Store(event, now.instant), now, &mut drop);
    core
}

#[test]
fn each_kind_of_service_is_counted_and_first_ones_are_named() {
    const PORTS: &str =
        r#""port":[{"name":"http","port":80},{"name":"dns","protocol":"UDP","port":53}]"#;
    let web = |name: &str| {
        let value = format!(r#"{{"cluster_ip":"10.97.0.1",{PORTS}}}"#);
        entry(Kind::Service, name, value)
    };
    let slice = r#"{"service_name":"web","address_type":"IPv4","ports":[{"name":"http","port":80},
        {"name":"dns","protocol":"UDP","port":53}],"endpoints":[{"addresses":["10.1.0.1"]},{"addresses":["10.1.0.2"]}]}"#;
    let labels = r#""labels":{"service.kubernetes.io/service-proxy-name":"other"}"#;
    let others = ["other1", "other2"].map(|name| {
        let value = format!(r#"{{"cluster_ip":"10.97.0.2",{labels},{PORTS}}}"#);
        entry(Kind::Service, name, value)
    });
    let mut entries = vec![
        web("web"),
        web("web2"),
        web("web3"),
        entry(Kind::EndpointSlice, "web-1", slice.to_owned()),
        entry(
            Kind::Service,
            "headless",
            format!(r#"{{"cluster_ip":"None",{PORTS}}}"#),
        ),
    ];
    entries.extend(others);
    entries.extend((0..7).map(service));
    let lacking = |number| {
        let value = format!("{{{PORTS}}}");
        entry(Kind::Service, &format!("unreachable{number}"), value)
    };
    entries.extend((0..6).map(lacking));
    let sizes = ServiceSizes::of(&node_with(entries));
    assert_eq!(
        [
            sizes.services,
            sizes.service_ports,
            sizes.backends,
            sizes.services_without_backends,
            sizes.services_with_lost_frontends,
            sizes.left_to_other_proxies,
            sizes.services_without_address,
        ],
        [10, 13, 4, 9, 2, 2, 6],
        "{sizes:?}"
    );
    let named = [
        sizes.without_backends.len(),
        sizes.lost_frontends.len(),
        sizes.without_address.len(),
    ];
    assert_eq!(named, [5, 2, 5], "{sizes:?}");
    let lost = &sizes.lost_frontends[0];
    assert_eq!((&*lost.service.name, &*lost.holder.name), ("web2", "web"));
}

#[test]
fn sizes_are_counted_without_a_copy_of_the_services() {
    let core = node_with((0..SERVICES).map(service).collect());
    let mut services = 0;
    let allocations = allocation_counter::measure(|| services = ServiceSizes::of(&core).services);
    assert_eq!(services, SERVICES);
    // The names of the first services without backends.
    assert!(allocations.count_total < 50, "{allocations:?}");
}
