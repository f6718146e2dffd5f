//! The memory of an agent whose store is a folder of manifests, beside that with etcd.

use std::{fs, thread};

use contiv_proto::{Key, Object};
use contiv_store::manifest::{to_value, to_yaml};
use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Etcd, State},
    lab::{Lab, LabError, Result, scratch},
};

use crate::{
    cluster::{Client, SECTION, SETTLE_TIME, process, remove_state, unexpected},
    figures::{Figure, Limit, Quantity},
    workload::Workload,
};

const WORKLOAD: Workload = Workload {
    services: 10_000,
    backends: 3,
};

/// Measures both, each with the same services. The folder has a file for each object.
///
/// # Errors
/// When an operation fails; slow figures are not errors.
pub fn measure(lab: &Lab) -> Result<Vec<Figure>> {
    remove_state()?;
    let etcd = Etcd::start(lab)?;
    Client::new()?.fill(lab, WORKLOAD)?;
    let beside = resident(lab, etcd.url())?;
    drop(etcd);
    remove_state()?;
    let folder = scratch("manifests")?;
    for (key, value) in WORKLOAD.values() {
        let key = Key::parse(&key)
            .map_err(unexpected)?
            .ok_or_else(|| unexpected(&key))?;
        let object = Object::decode(&key, value.as_bytes()).map_err(unexpected)?;
        let text = to_yaml(&[to_value(&object)]).map_err(unexpected)?;
        let path = folder
            .join(key.namespace())
            .join(format!("{}-{}.yaml", key.kind(), key.name()));
        let written = path
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&path, text));
        written.map_err(|error| LabError::system(format!("write {}", path.display()), error))?;
    }
    let seen = resident(lab, format!("dir:{}", folder.display()))?;
    fs::remove_dir_all(&folder)
        .map_err(|error| LabError::system(format!("remove {}", folder.display()), error))?;
    let figure = Figure::new(
        SECTION,
        "memory with a folder, beside etcd",
        (WORKLOAD.services, WORKLOAD.backends),
        seen,
    );
    Ok(vec![
        figure.beside(beside).with_limit(Limit::TimesFloor(1.3)),
    ])
}

/// The memory of an agent at rest.
fn resident(lab: &Lab, store: String) -> Result<Quantity> {
    let agent = Agent::start_as_service(lab, &AgentOptions::with_store(store))?;
    thread::sleep(SETTLE_TIME);
    let memory = process::memory(agent.id())?;
    agent.stop()?;
    lab.node.exec(&["nft", "delete table inet contiv"])?;
    Ok(memory.resident)
}
