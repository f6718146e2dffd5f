//! Agents that are killed while the store changes, and start again without it: the mirror has what was active.
#![expect(clippy::expect_used, reason = "what is not as expected fails the test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Etcd, EtcdClient, ROOT, Service, State},
    lab::{Lab, Result, isolated_within, wait_until},
};
use rand::{RngExt as _, SeedableRng, rngs::StdRng};
use serde_json::json;

/// How often the agent is killed; `CONTIV_MIRROR_KILLS` sets another number.
const KILLS: u32 = 20;
/// The time limit for expected events. Generous.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);
/// The guarantee: nothing after the start is older than what was active this long before the kill.
const MAX_STALENESS: Duration = Duration::from_millis(10);
/// The period of each of two threads that change the store: 200 changes a second.
const CHANGE_INTERVAL: Duration = Duration::from_millis(10);
/// Endpoint slices with one address, `10.150.…` for the first of them, that is incremented.
const COUNTERS: u8 = 8;
const FIRST_COUNTER: u8 = 150;
/// Endpoint slices that are created and deleted in turn, with increasing addresses `10.170.…`.
const WINDOW: u8 = 170;
const WINDOW_LENGTH: u16 = 4;

/// The address of etcd for agents, while it is redirected. Nothing listens there, so without that connections are refused at
/// once.
const STORE: &str = "127.0.0.1:3379";
const REDIRECT: &str = "table ip etcd-redirect {
    chain output {
        type nat hook output priority -100
        ip daddr 127.0.0.1 tcp dport 3379 redirect to :2379
    }
}";

/// Stores an endpoint slice of the service with one address, which contains a number.
fn put_slice(
    etcd: &EtcdClient<'_>,
    service: &Service,
    name: &str,
    address: [u8; 2],
    n: u16,
) -> Result<()> {
    let [high, low] = n.to_be_bytes();
    let value = json!({
        "name": name,
        "namespace": "default",
        "service_name": service.name,
        "address_type": "IPv4",
        "endpoints": [{
            "addresses": [format!("{}.{}.{high}.{low}", address[0], address[1])],
            "conditions": {"ready": true},
        }],
        "ports": [{"name": "web", "port": 8080, "protocol": "TCP"}],
    });
    etcd.put_value_at_once(0, &slice_key(name), &value.to_string())
        .map(drop)
}

fn slice_key(name: &str) -> String {
    format!("{ROOT}/endpointslice/{name}/namespace/default")
}

/// The numbers in the backends' addresses in the kernel, by the second byte of the address.
fn active(lab: &Lab) -> Result<BTreeMap<u8, BTreeSet<u16>>> {
    let table = lab
        .node
        .exec(&["nft", "--numeric", "list", "table", "inet", "contiv"])?;
    let mut numbers: BTreeMap<u8, BTreeSet<u16>> = BTreeMap::new();
    let words = table.split(|c: char| !c.is_ascii_digit() && c != '.');
    for address in words.filter_map(|word| word.parse::<std::net::Ipv4Addr>().ok()) {
        let [first, second, high, low] = address.octets();
        let is_counter = (FIRST_COUNTER..FIRST_COUNTER + COUNTERS).contains(&second);
        if first == 10 && (is_counter || second == WINDOW) {
            numbers
                .entry(second)
                .or_default()
                .insert(u16::from_be_bytes([high, low]));
        }
    }
    Ok(numbers)
}

/// The objects that are older in `now` than in `before`: a smaller number, or a deleted one that is back.
fn older(before: &BTreeMap<u8, BTreeSet<u16>>, now: &BTreeMap<u8, BTreeSet<u16>>) -> Vec<String> {
    let ends = |numbers: Option<&BTreeSet<u16>>| {
        numbers
            .and_then(|numbers| Some((*numbers.first()?, *numbers.last()?)))
            .unwrap_or_default()
    };
    let is_older = |slice: &&u8| {
        let ((first, last), (first_now, last_now)) =
            (ends(before.get(slice)), ends(now.get(slice)));
        first_now < first || last_now < last
    };
    let describe = |slice: &u8| {
        format!(
            "10.{slice}: {:?} after {:?}",
            now.get(slice),
            before.get(slice)
        )
    };
    before.keys().filter(is_older).map(describe).collect()
}

/// Changes slices until `is_over`, and continues when it is called again.
struct Churn<'a> {
    etcd: &'a EtcdClient<'a>,
    service: &'a Service,
    /// The number of changes of counters, and of the window.
    counted: AtomicUsize,
    slid: AtomicUsize,
    is_over: AtomicBool,
}

impl Churn<'_> {
    fn repeat(&self, mut change: impl FnMut() -> Result<()>) -> Result<()> {
        let mut next = Instant::now();
        while !self.is_over.load(Ordering::Relaxed) {
            change()?;
            next += CHANGE_INTERVAL;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }

    fn count(&self) -> Result<()> {
        self.repeat(|| {
            let change = self.counted.fetch_add(1, Ordering::Relaxed);
            let slices = usize::from(COUNTERS);
            let slice = FIRST_COUNTER + u8::try_from(change % slices).expect("less than COUNTERS");
            let n = u16::try_from(1 + change / slices).expect("no more changes than that");
            put_slice(
                self.etcd,
                self.service,
                &format!("counter-{slice}"),
                [10, slice],
                n,
            )
        })
    }

    fn slide(&self) -> Result<()> {
        self.repeat(|| {
            let change = self.slid.fetch_add(1, Ordering::Relaxed);
            let newest = u16::try_from(1 + change / 2).expect("no more changes than that");
            if change.is_multiple_of(2) {
                put_slice(
                    self.etcd,
                    self.service,
                    &format!("window-{newest}"),
                    [10, WINDOW],
                    newest,
                )
            } else {
                let oldest = newest.saturating_sub(WINDOW_LENGTH);
                self.etcd
                    .delete_at_once(0, &slice_key(&format!("window-{oldest}")))
                    .map(drop)
            }
        })
    }
}

fn wait_until_synced(agent: &Agent<'_>) -> Result<()> {
    wait_until("the agent has read the store", EVENT_TIMEOUT, || {
        agent
            .status()
            .is_ok_and(|status| status["from_mirror"] == false && status["synced"] == true)
    })
    .map(drop)
}

/// Kills at random moments of 200 changes a second, with the store unreachable from then on. The kernel is read 10 ms before each
/// kill.
#[test]
fn agent_killed_during_changes_starts_with_what_was_active() -> Result<()> {
    let kills = env::var("CONTIV_MIRROR_KILLS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(KILLS);
    let test = "mirror_kills::agent_killed_during_changes_starts_with_what_was_active";
    isolated_within(
        Duration::from_secs(60) + Duration::from_secs(5) * kills,
        test,
        |lab| {
            let etcd = Etcd::start(lab)?;
            let service = Service::new("web", 80, &[]);
            etcd.put(&service)?;
            let options = AgentOptions::with_store(format!("etcd://{STORE}"));
            lab.node.exec_with_input(&["nft", "-f", "-"], REDIRECT)?;
            let mut agent = Agent::start(lab, &options)?;
            wait_until("something is saved", EVENT_TIMEOUT, || {
                agent
                    .status()
                    .is_ok_and(|status| status["mirror"]["revision"].is_i64())
            })?;
            let mut random = StdRng::seed_from_u64(3);
            let mut churn = Churn {
                etcd: etcd.client(),
                service: &service,
                counted: AtomicUsize::default(),
                slid: AtomicUsize::default(),
                is_over: AtomicBool::default(),
            };
            let (mut failures, mut differing, start) = (Vec::new(), 0, Instant::now());
            // The number of comparisons, and of those in which the mirror was newer than at the end of the round before.
            let (mut compared, mut newer, mut last) = (0, 0, BTreeMap::new());
            for round in 0..kills {
                if round > 0 {
                    lab.node.exec_with_input(&["nft", "-f", "-"], REDIRECT)?;
                }
                // In half of the rounds the agent is killed soon after a list that contains changes.
                let waits_for_sync = random.random::<bool>();
                let pause = Duration::from_millis(random.random_range(0..400));
                churn.is_over.store(false, Ordering::Relaxed);
                let before = thread::scope(|scope| {
                    let threads = [scope.spawn(|| churn.count()), scope.spawn(|| churn.slide())];
                    let killed = if waits_for_sync {
                        wait_until_synced(&agent)
                    } else {
                        Ok(())
                    }
                    .and_then(|()| {
                        thread::sleep(pause);
                        let before = active(lab)?;
                        thread::sleep(MAX_STALENESS);
                        agent.kill()?;
                        Ok(before)
                    });
                    churn.is_over.store(true, Ordering::Relaxed);
                    for thread in threads {
                        thread.join().expect("no panic")?;
                    }
                    killed
                })?;
                lab.node
                    .exec(&["nft", "delete", "table", "ip", "etcd-redirect"])?;
                let when_killed = active(lab)?;
                agent = Agent::start(lab, &options)?;
                let said = agent.status()?;
                assert_eq!(said["from_mirror"], true, "round {round}: {said}");
                let now = active(lab)?;
                failures.extend(
                    older(&before, &now)
                        .iter()
                        .map(|older| format!("round {round}: {older}")),
                );
                differing += usize::from(when_killed != now);
                compared += u32::try_from(before.len()).expect("a few slices");
                newer += u32::from(before != last);
                last = now;
            }
            let changes = *churn.counted.get_mut() + *churn.slid.get_mut();
            println!(
                "{kills} kills in {:?}, {changes} changes; {differing} times the last 10 ms were lost in part; \
             {compared} slices compared, in {newer} rounds newer ones than before",
                start.elapsed()
            );
            // The first rounds may end before the agent has read the store.
            assert!(
                compared >= u32::from(COUNTERS) * kills / 2,
                "only {compared} slices were compared"
            );
            assert!(
                newer >= kills / 4,
                "only {newer} of {kills} kills came after a change was active"
            );
            assert!(
                failures.is_empty(),
                "{} older objects:\n{}",
                failures.len(),
                failures.join("\n")
            );
            Ok(())
        },
    )
}
