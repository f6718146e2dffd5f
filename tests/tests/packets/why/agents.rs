//! Faults of the agent and its store.

use std::{fs, process::Command};

use contiv_tests::{
    agent::Agent,
    lab::{LabError, Process, Result, isolated, scratch, wait_until},
};

use super::{
    fault::{Fault, Machine, Step, fault},
    group::run_group,
    scene::{EVENT_TIMEOUT, Object, Scene},
};

const WEB: &str = "10.96.0.80:80/tcp";
/// The service that is put after the agent, or the store, is gone.
const NEW: &str = "10.96.0.90:80/tcp";

fn put_new(scene: &mut Scene<'_>) -> Result<()> {
    scene.put(&Object::new("new", 90, &["pod3"]))
}

fn delete_new(scene: &mut Scene<'_>) -> Result<()> {
    scene.delete("new")
}

fn stop(scene: &mut Scene<'_>) -> Result<()> {
    scene.stop_agent()
}

fn start(scene: &mut Scene<'_>) -> Result<()> {
    scene.stop_agent()?;
    scene.start_agent()
}

/// The backend of the service web moves from pod3 to pod4.
fn move_backend(scene: &mut Scene<'_>) -> Result<()> {
    scene.put(&Object::new("web", 80, &["pod4"]))?;
    scene.unserve(Machine::Pod3)
}

fn move_backend_back(scene: &mut Scene<'_>) -> Result<()> {
    scene.serve(Machine::Pod3)?;
    scene.put(&Object::new("web", 80, &["pod3"]))
}

fn hide_store(scene: &mut Scene<'_>) -> Result<()> {
    let folder = scene.manifests.folder();
    fs::rename(&folder, format!("{folder}.away"))
        .map_err(|error| LabError::system("rename the store", error))
}

fn show_store(scene: &mut Scene<'_>) -> Result<()> {
    let folder = scene.manifests.folder();
    // An agent may have made an empty one.
    let _ = fs::remove_dir(&folder);
    fs::rename(format!("{folder}.away"), &folder)
        .map_err(|error| LabError::system("rename the store", error))
}

/// Forgets all state of the agent but that of the kernel.
fn forget_saved_state(_: &mut Scene<'_>) -> Result<()> {
    let folder = scratch("agent-state")?;
    fs::remove_dir_all(&folder)
        .map_err(|error| LabError::system(format!("remove {}", folder.display()), error))
}

/// Starts an agent that cannot become ready.
fn launch(scene: &mut Scene<'_>) -> Result<()> {
    let agent = Agent::launch(&scene.lab.node, "agent", &scene.options)?;
    scene.agent = Some(agent);
    Ok(())
}

fn wait_for_warning(scene: &Scene<'_>, path: &str, word: &str) -> Result<()> {
    let agent = scene.agent()?;
    wait_until(&format!("{word} is in {path}"), EVENT_TIMEOUT, || {
        agent
            .http("GET", path)
            .is_ok_and(|response| response.body.contains(word))
    })
    .map(drop)
}

/// Another process owns a table of the same name.
fn take_table(scene: &mut Scene<'_>) -> Result<()> {
    let mut command = Command::new("sh");
    // nft holds the table until its input ends; it is the process that ends in the end.
    let script = "mkfifo /run/contiv-lab/commands; (echo 'add table inet contiv { flags owner; }'; exec sleep 1000) \
         >/run/contiv-lab/commands & exec nft -i </run/contiv-lab/commands";
    command.args(["-c", script]);
    let owner = Process::start(&scene.lab.node, "owner", &mut command)?;
    wait_until("the table has another owner", EVENT_TIMEOUT, || {
        let listed = scene.lab.node.exec(&["nft", "list", "tables"]);
        listed.is_ok_and(|tables| tables.contains("inet contiv"))
    })?;
    scene.kept.push(Box::new(owner));
    Ok(())
}

fn delete_table() -> Step {
    Step::Shell(Machine::Node, "nft delete table inet contiv".to_owned())
}

fn faults_of_stopped_agents() -> Vec<Fault> {
    use Machine::Pod2;
    vec![
        fault(
            "the agent is stopped, the service is newer",
            Pod2,
            NEW,
            &["agent-stopped"],
            "no agent runs on this node; its table is older than the service",
        )
        .permanent()
        .call(stop, start)
        .call(put_new, delete_new),
        fault(
            "the agent is stopped, its table deleted",
            Pod2,
            WEB,
            &["agent-stopped", "table-missing"],
            "no agent runs on this node, and it has no table: nothing is served here",
        )
        .call(stop, start)
        .inject(delete_table()),
        fault(
            "the agent is stopped, the backend moved",
            Pod2,
            WEB,
            &["agent-stopped"],
            "no agent runs on this node; the table still leads to 10.244.2.10, which refuses",
        )
        .call(stop, start)
        .call(move_backend, move_backend_back),
        fault(
            "the agent is stopped, an element of its table deleted",
            Pod2,
            WEB,
            &["agent-stopped", "table-differs"],
            "no agent runs on this node, and somebody removed the service from its table",
        )
        .call(stop, start)
        .inject(Step::Shell(
            Machine::Node,
            "nft delete element inet contiv services4 '{ 10.96.0.80 . tcp . 80 }'".to_owned(),
        )),
        fault(
            "the agent is frozen (SIGSTOP), the service is newer",
            Pod2,
            NEW,
            &["agent-hangs"],
            "the process of the agent is stopped: it applies no changes",
        )
        .permanent()
        .call(
            |scene| scene.agent()?.pause(),
            |scene| scene.agent()?.resume(),
        )
        .call(put_new, delete_new),
        fault(
            "the folder of the store is missing, so the agent does not start",
            Pod2,
            WEB,
            &["agent-stopped"],
            "the agent ends at its start, since its store is missing, and the node has no table",
        )
        .call(stop, start)
        .inject(delete_table())
        .call(forget_saved_state, |_| Ok(()))
        .call(hide_store, show_store)
        .inject(Step::Call(launch))
        .undo_in_reverse(),
        fault(
            "the folder of the store is gone, the service is newer",
            Pod2,
            NEW,
            &["store-down", "quarantined"],
            "the agent cannot read its store any more, and does not know the service",
        )
        .permanent()
        .call(hide_store, show_store)
        .inject(Step::Call(|scene| {
            wait_for_warning(scene, "/quarantine", "cannot be read")
        })),
    ]
}

fn faults_of_running_agents() -> Vec<Fault> {
    use Machine::Pod2;
    vec![
        fault(
            "another process owns the table",
            Pod2,
            WEB,
            &["renderer-fails"],
            "the kernel refuses the agent its own table, which another process owns",
        )
        .call(stop, start)
        .inject(delete_table())
        .call(take_table, |scene| {
            scene.kept.clear();
            Ok(())
        })
        .inject(Step::Call(launch))
        .inject(Step::Call(|scene| wait_for_warning(scene, "/renderers", "last_error")))
        .undo_in_reverse(),
        fault(
            "the manifest of the service is invalid",
            Pod2,
            "10.96.0.91:80/tcp",
            &["quarantined"],
            "the service has an invalid port, so the agent quarantined it",
        )
        .permanent()
        .call(
            |scene| {
                let object = Object::new("invalid", 91, &["pod3"]);
                let text = object.service().replace("port: 80,", "port: 99999,");
                let text = format!("{text}---\n{}", object.slices());
                scene.manifests.write("invalid.yaml", &text)?;
                wait_for_warning(scene, "/quarantine", "invalid")
            },
            |scene| scene.delete("invalid"),
        ),
        fault(
            "the manifest of the slice is invalid",
            Pod2,
            "10.96.0.92:80/tcp",
            &["quarantined"],
            "the endpoint slice of the service has an invalid address, so the agent quarantined it",
        )
        .permanent()
        .call(
            |scene| {
                scene.put(&Object {
                    address: Some("10.244.2.300"),
                    ..Object::new("sliced", 92, &["pod3"])
                })?;
                wait_for_warning(scene, "/quarantine", "sliced")
            },
            |scene| scene.delete("sliced"),
        ),
        fault(
            "deletions are held, a backend is gone",
            Pod2,
            "10.96.0.109:80/tcp",
            &["deletions-held"],
            "most slices were deleted at once, so the agent holds the deletions, also of a backend that is gone",
        )
        .call(
            |scene| {
                scene.unserve(Machine::Pod4)?;
                for (number, name) in (101..).zip(HELD) {
                    let object = Object::new(name, number, &["pod4"]);
                    let file = format!("{name}.yaml");
                    scene.manifests.write(&file, &object.service())?;
                }
                wait_for_warning(scene, "/status", "held_deletions")
            },
            |scene| {
                scene.serve(Machine::Pod4)?;
                put_held(scene)
            },
        ),
    ]
}

/// Services that are deleted together.
const HELD: [&str; 12] = [
    "held1", "held2", "held3", "held4", "held5", "held6", "held7", "held8", "held9", "held10",
    "held11", "held12",
];

fn put_held(scene: &mut Scene<'_>) -> Result<()> {
    (101..)
        .zip(HELD)
        .try_for_each(|(number, name)| scene.put(&Object::new(name, number, &["pod4"])))
}

#[test]
fn faults_of_agent_and_store_are_named() -> Result<()> {
    isolated("why::agents::faults_of_agent_and_store_are_named", |lab| {
        let mut scene = Scene::start(lab, &["--mass-deletion-wait=1h"])?;
        put_held(&mut scene)?;
        let faults: Vec<Fault> = [faults_of_stopped_agents(), faults_of_running_agents()]
            .into_iter()
            .flatten()
            .collect();
        run_group("agent and store", &mut scene, &faults)
    })
}
