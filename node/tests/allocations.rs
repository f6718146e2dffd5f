//! The memory that frequent requests to the node allocate: a bound, since a copy of all services for each would be a defect.

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

fn service(number: usize) -> Entry {
    let key = Key::new(Kind::Service, "default", format!("s{number:05}"))
        .expect("a good name")
        .to_path();
    let value = format!(
        r#"{{"cluster_ip":"10.96.{}.{}","port":[{{"name":"http","protocol":"TCP","port":80}}]}}"#,
        number / 250,
        number % 250 + 1
    );
    Entry {
        key,
        value: value.into(),
        create_revision: 1,
        mod_revision: 1,
    }
}

#[test]
fn sizes_are_counted_without_a_copy_of_the_services() {
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
    };
    let mut core = Core::new(config, now);
    let list = FeedEvent::Snapshot(Snapshot {
        revision: 7,
        entries: (0..SERVICES).map(service).collect(),
        problems: Vec::new(),
    });
    let event = Decoder::new(now.time).decode(list).expect("a list");
    core.handle(Input::Store(event, now.instant), now, &mut drop);

    let mut services = 0;
    let allocations = allocation_counter::measure(|| services = ServiceSizes::of(&core).services);
    assert_eq!(services, SERVICES);
    // The names of the first services without backends.
    assert!(allocations.count_total < 50, "{allocations:?}");
}
