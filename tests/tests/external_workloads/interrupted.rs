//! The active instance is killed, frozen beyond its lease, and cut off, while workloads change all the time. At the end the
//! store is right, and at no moment two instances wrote.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use contiv_tests::{
    cluster::{Etcd, EtcdClient, ROOT},
    lab::{Lab, LabError, Result, isolated, wait_until},
};
use nix::sys::signal::Signal;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::Value;

use crate::{
    fleet::{Instance, SOON, next_holder},
    history,
    registry::{Workload, service, service_key},
};

const SERVICES: usize = 3;
const WORKLOADS: u8 = 40;

/// How long work goes on in each phase.
const PHASE: Duration = Duration::from_secs(2);

#[test]
fn whatever_happens_to_the_active_instance_the_store_ends_right_and_two_never_write() -> Result<()> {
    isolated(
        "interrupted::whatever_happens_to_the_active_instance_the_store_ends_right_and_two_never_write",
        |lab| {
            let etcd = Etcd::start(lab)?;
            for number in 0..SERVICES {
                let (name, ip) = (name(number), format!("10.96.0.{}", 10 + number));
                etcd.put_value(&service_key(&name), &service(&name, &name, &[&ip]).to_string())?;
            }
            let mut fleet = [&lab.node2, &lab.client, &lab.pod1]
                .into_iter()
                .map(|home| Instance::start(lab, home))
                .collect::<Result<Vec<_>>>()?;
            let done = AtomicBool::new(false);
            let workloads = thread::scope(|scope| {
                let churning = scope.spawn(|| churn(etcd.client(), &done));
                let interrupted = interrupt(lab, &etcd, &mut fleet);
                done.store(true, Ordering::Relaxed);
                let workloads =
                    churning.join().map_err(|_| LabError::Unexpected("churning panicked".to_owned()))?;
                interrupted.and(workloads)
            })?;
            let expected = expected(&workloads);
            let mut found = BTreeMap::new();
            wait_until("every service has its ready workloads", SOON, || {
                found = endpoints(&etcd).unwrap_or_default();
                found == expected
            })
            .map_err(|error| LabError::Unexpected(format!("{error}: {found:?} rather than {expected:?}")))?;
            let (written, terms) = history::check(lab, &etcd)?;
            println!("{written} slices were written in {terms} terms");
            assert!(terms >= 4 && written > 20, "{written} slices in {terms} terms prove nothing");
            Ok(())
        },
    )
}

fn name(number: usize) -> String {
    format!("app{number}")
}

/// Kills, freezes and cuts off whoever is active, one after the other.
fn interrupt<'lab>(lab: &'lab Lab, etcd: &Etcd<'_>, fleet: &mut [Instance<'lab>]) -> Result<()> {
    let find = |fleet: &[Instance<'_>], holder: &str| {
        let found = fleet.iter().position(|instance| instance.home.host.name == holder);
        found.ok_or_else(|| LabError::Unexpected(format!("there is no instance {holder}")))
    };
    let killed = next_holder(etcd, "")?;
    thread::sleep(PHASE);
    let index = find(fleet, &killed)?;
    fleet[index].kill()?;
    let frozen = next_holder(etcd, &killed)?;
    fleet[index] = Instance::start(lab, fleet[index].home)?;
    thread::sleep(PHASE);

    let index = find(fleet, &frozen)?;
    fleet[index].signal(Signal::SIGSTOP)?;
    next_holder(etcd, &frozen)?;
    thread::sleep(PHASE);
    fleet[index].signal(Signal::SIGCONT)?;
    thread::sleep(PHASE);

    let cut_off = next_holder(etcd, "")?;
    let index = find(fleet, &cut_off)?;
    fleet[index].cut()?;
    next_holder(etcd, &cut_off)?;
    thread::sleep(PHASE);
    fleet[index].mend()?;
    thread::sleep(PHASE);
    Ok(())
}

/// Changes workloads at random until nobody wants any more. Returns those that are there then.
fn churn(etcd: &EtcdClient<'_>, done: &AtomicBool) -> Result<BTreeMap<u8, Workload>> {
    let mut random = StdRng::seed_from_u64(7);
    let mut workloads = BTreeMap::new();
    while !done.load(Ordering::Relaxed) {
        let number = random.random_range(0..WORKLOADS);
        let workload = Workload {
            name: format!("vm-{number}"),
            app: name(random.random_range(0..SERVICES)),
            addresses: vec![format!("192.0.2.{}", 1 + number)],
            is_ready: random.random(),
        };
        if random.random_range(0..4) == 0 {
            etcd.etcdctl(&["del", &workload.key()])?;
            workloads.remove(&number);
        } else {
            workload.put(etcd)?;
            workloads.insert(number, workload);
        }
    }
    Ok(workloads)
}

/// The addresses of each service, with whether they are ready.
type Endpoints = BTreeMap<String, BTreeSet<(String, bool)>>;

fn expected(workloads: &BTreeMap<u8, Workload>) -> Endpoints {
    let mut expected = Endpoints::new();
    for workload in workloads.values() {
        let address = (workload.addresses[0].clone(), workload.is_ready);
        expected.entry(workload.app.clone()).or_default().insert(address);
    }
    expected
}

/// What the slices in etcd say. An address that is there twice is an error.
fn endpoints(etcd: &EtcdClient<'_>) -> Result<Endpoints> {
    let values =
        etcd.etcdctl(&["get", "--prefix", &format!("{ROOT}/endpointslice/"), "--print-value-only"])?;
    let mut found = Endpoints::new();
    for line in values.lines().filter(|line| !line.is_empty()) {
        let slice: Value =
            serde_json::from_str(line).map_err(|error| LabError::Unexpected(format!("{error}: {line}")))?;
        let service = found.entry(slice["service_name"].as_str().unwrap_or_default().to_owned()).or_default();
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            let address = endpoint["addresses"][0].as_str().unwrap_or_default().to_owned();
            let is_ready = endpoint["conditions"]["ready"].as_bool().unwrap_or_default();
            if !service.insert((address.clone(), is_ready)) {
                return Err(LabError::Unexpected(format!("{address} is there twice")));
            }
        }
    }
    Ok(found)
}
