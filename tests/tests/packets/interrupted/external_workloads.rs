//! Workloads that change continuously. Each slice contains the term in which it was written.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
};

use contiv_tests::{
    cluster::{Etcd, EtcdClient, ROOT},
    fleet::{EVENT_TIMEOUT, history::History},
    lab::{LabError, Result, isolated, wait_until},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::Value;

use crate::interrupted::{
    interrupt_while,
    workload::{Workload, service, service_key},
};

const SERVICES: usize = 3;
const WORKLOADS: u8 = 40;

#[test]
fn interrupted_external_workloads_converge_with_one_writer() -> Result<()> {
    isolated(
        "interrupted::external_workloads::interrupted_external_workloads_converge_with_one_writer",
        |lab| {
            let etcd = Etcd::start(lab)?;
            for number in 0..SERVICES {
                let (name, ip) = (name(number), format!("10.96.0.{}", 10 + number));
                etcd.put_value(
                    &service_key(&name),
                    &service(&name, &name, &[&ip]).to_string(),
                )?;
            }
            let slices = format!("{ROOT}/endpointslice/");
            let arguments = ["--enable", "external-workloads"];
            let prefixes = std::slice::from_ref(&slices);
            let (_fleet, workloads) = interrupt_while(lab, &etcd, &arguments, prefixes, |done| {
                churn(etcd.client(), done)
            })?;
            let expected = expected(&workloads);
            let mut found = BTreeMap::new();
            wait_until(
                "every service has its ready workloads",
                EVENT_TIMEOUT,
                || {
                    found = endpoints(&etcd).unwrap_or_default();
                    found == expected
                },
            )
            .map_err(|error| {
                LabError::Unexpected(format!("{error}: {found:?} rather than {expected:?}"))
            })?;
            let written = History::read(lab, &etcd)?.is_of_its_terms(&[&slices])?;
            println!("{written:?}");
            assert!(
                written.terms >= 4 && written.writes > 20,
                "{written:?} proves nothing"
            );
            Ok(())
        },
    )
}

fn name(number: usize) -> String {
    format!("app{number}")
}

/// Changes workloads at random until `done`. Returns the final workloads.
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
            etcd.delete_key(&workload.key())?;
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
        expected
            .entry(workload.app.clone())
            .or_default()
            .insert(address);
    }
    expected
}

/// The endpoints in etcd. A duplicate address is an error.
fn endpoints(etcd: &EtcdClient<'_>) -> Result<Endpoints> {
    let values = etcd.etcdctl(&[
        "get",
        "--prefix",
        &format!("{ROOT}/endpointslice/"),
        "--print-value-only",
    ])?;
    let mut found = Endpoints::new();
    for line in values.lines().filter(|line| !line.is_empty()) {
        let slice: Value = serde_json::from_str(line)
            .map_err(|error| LabError::Unexpected(format!("{error}: {line}")))?;
        let service = found
            .entry(
                slice["service_name"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
            )
            .or_default();
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            let address = endpoint["addresses"][0]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let is_ready = endpoint["conditions"]["ready"]
                .as_bool()
                .unwrap_or_default();
            if !service.insert((address.clone(), is_ready)) {
                return Err(LabError::Unexpected(format!("{address} is there twice")));
            }
        }
    }
    Ok(found)
}
