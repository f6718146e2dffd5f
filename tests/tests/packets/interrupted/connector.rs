//! A file of services that changes all the time. Each state has a number that only grows.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use contiv_tests::{
    cluster::{Etcd, EtcdClient, ROOT},
    fleet::EVENT_TIMEOUT,
    lab::{LabError, Result, isolated, scratch, wait_until},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::Value;

use crate::interrupted::{interrupt_while, is_written_once};

const NAMES: usize = 8;
/// The pause between two changes of the file; it is read after 100 ms without a change.
const CHANGE_INTERVAL: Duration = Duration::from_millis(250);
/// A longer pause after some changes, so that they are written: the connector waits for 1 s of quiet.
const DEBOUNCE_TIME: Duration = Duration::from_millis(1500);
const BURST: i64 = 3;
/// The first port; the number is added, so that endpoints reveal it too.
const FIRST_PORT: i64 = 1024;

/// The number of each service, by name.
type Services = BTreeMap<String, i64>;

#[test]
fn interrupted_connector_converges_and_writes_nothing_twice() -> Result<()> {
    let test = "interrupted::connector::interrupted_connector_converges_and_writes_nothing_twice";
    isolated(test, |lab| {
        let etcd = Etcd::start(lab)?;
        let (file, config) = (scratch("services.yaml")?, scratch("connector.toml")?);
        write(&file, "services: []\n")?;
        let registries = format!(
            "cluster-ip-ranges = [\"10.96.0.0/16\"]\n[[registries]]\nname = \"machines\"\nfile = {:?}\n",
            file.display()
        );
        write(&config, &registries)?;
        let config = config.display().to_string();
        let arguments = ["--enable", "connector", "--connector-file", &config];
        let prefixes = PREFIXES.map(full);
        let (_fleet, expected) =
            interrupt_while(lab, &etcd, &arguments, &prefixes, |done| churn(&file, done))?;
        let mut found = [Services::new(), Services::new()];
        wait_until("etcd has what the file has", EVENT_TIMEOUT, || {
            found = PREFIXES.map(|prefix| stored(&etcd, prefix).unwrap_or_default());
            found.iter().all(|found| *found == expected)
        })
        .map_err(|error| {
            LabError::Unexpected(format!("{error}: {found:?} rather than {expected:?}"))
        })?;
        println!(
            "{}",
            is_written_once(lab, &etcd, &prefixes, number, (3, 20))?
        );
        Ok(())
    })
}

/// The types that the connector writes.
const PREFIXES: [&str; 2] = ["service", "endpoints"];

fn full(prefix: &str) -> String {
    format!("{ROOT}/{prefix}/")
}

fn write(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, path))
        .map_err(|error| LabError::system(format!("write {}", path.display()), error))
}

/// Changes the file at random until `done`. Returns the final services.
fn churn(file: &Path, done: &AtomicBool) -> Result<Services> {
    let mut random = StdRng::seed_from_u64(13);
    let mut services = Services::new();
    let mut newest = 0;
    while !done.load(Ordering::Relaxed) {
        newest += 1;
        let name = format!("s{}", random.random_range(0..NAMES));
        if random.random_range(0..4) == 0 {
            services.remove(&name);
        } else {
            services.insert(name, newest);
        }
        let mut text = "services:\n".to_owned();
        for (name, number) in &services {
            let port = FIRST_PORT + number;
            let entry = format!(
                "  - {{name: {name}, port: 80, annotations: {{number: '{number}'}}, \
                 endpoints: [{{address: 192.0.2.1, port: {port}}}]}}\n"
            );
            text.push_str(&entry);
        }
        write(
            file,
            if services.is_empty() {
                "services: []\n"
            } else {
                &text
            },
        )?;
        thread::sleep(if newest % BURST == 0 {
            DEBOUNCE_TIME
        } else {
            CHANGE_INTERVAL
        });
    }
    Ok(services)
}

/// The number in a stored service, or in stored endpoints.
fn number(value: &str) -> Option<i64> {
    let value: Value = serde_json::from_str(value).ok()?;
    let of_service = || value["annotations"]["number"].as_str()?.parse().ok();
    let of_endpoints =
        || Some(value["endpoint_subsets"][0]["ports"][0]["port"].as_i64()? - FIRST_PORT);
    of_service().or_else(of_endpoints)
}

fn stored(etcd: &EtcdClient<'_>, prefix: &str) -> Result<Services> {
    let values = etcd.etcdctl(&["get", "--prefix", &full(prefix), "--print-value-only"])?;
    let read = |line: &str| {
        let value: Value = serde_json::from_str(line).ok()?;
        Some((value["name"].as_str()?.to_owned(), number(line)?))
    };
    Ok(values
        .lines()
        .filter(|line| !line.is_empty())
        .filter_map(read)
        .collect())
}
