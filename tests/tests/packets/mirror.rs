//! The last known state is saved on disk and used while the store cannot be reached.

use std::time::Duration;

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Etcd, Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{Family, Lab, Outcome, Protocol, Responder, Result, isolated, scratch, wait_until},
};

/// The time limit for expected events. Generous.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

fn ask(lab: &Lab, service: &Service) -> Result<Outcome> {
    lab.client.ask(
        Protocol::Tcp,
        service.address(lab, Frontend::NodePort, Family::V4),
    )
}

fn is_answered(lab: &Lab, service: &Service, by: &str) -> bool {
    ask(lab, service)
        .is_ok_and(|outcome| matches!(outcome, Outcome::Answered { answer, .. } if answer.by == by))
}

/// Removes everything that the agent has programmed from the kernel, as a reboot would.
fn clear_kernel(lab: &Lab) -> Result<()> {
    lab.node
        .exec(&[&binary()?.to_string_lossy(), "cleanup"])
        .map(drop)
}

#[test]
fn agent_without_store_starts_from_mirror_and_catches_up() -> Result<()> {
    let test = "mirror::agent_without_store_starts_from_mirror_and_catches_up";
    isolated(test, |lab| {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let mut etcd = Etcd::start(lab)?;
        let [web, deleted] =
            [("web", 80), ("deleted", 81)].map(|(name, n)| Service::new(name, n, &[lab.pod1.host]));
        etcd.put(&web)?;
        etcd.put(&deleted)?;
        let options = AgentOptions::with_store(etcd.url());
        let agent = Agent::start(lab, &options)?;
        agent.wait_until_saved()?;
        // A change after the first list is saved too.
        let moved = Service {
            backends: vec![lab.pod3.host],
            ..web.clone()
        };
        etcd.put(&moved)?;
        agent.wait_until_applied(&moved)?;
        agent.wait_until_saved()?;
        agent.kill()?;
        etcd.kill()?;
        clear_kernel(lab)?;
        assert!(!is_answered(lab, &web, "pod3"));

        let agent = Agent::start(lab, &options)?;
        assert!(is_answered(lab, &web, "pod3") && is_answered(lab, &deleted, "pod1"));
        let status = agent.status()?;
        assert_eq!(
            (&status["from_mirror"], &status["ready"]),
            (&true.into(), &true.into()),
            "{status}"
        );
        assert!(status["store_down"]["reason"].is_string(), "{status}");

        etcd.start_again()?;
        etcd.delete(&deleted)?;
        let moved_again = Service {
            backends: vec![lab.pod4.host],
            ..web.clone()
        };
        etcd.put(&moved_again)?;
        agent.wait_until_applied(&moved_again)?;
        agent.wait_until_gone(&deleted)?;
        assert!(is_answered(lab, &web, "pod4") && !is_answered(lab, &deleted, "pod1"));
        let status = agent.status()?;
        assert_eq!(
            (&status["from_mirror"], status.get("store_down")),
            (&false.into(), None),
            "{status}"
        );
        Ok(())
    })
}

#[test]
fn value_corrupted_while_stopped_keeps_its_last_good_state() -> Result<()> {
    let test = "mirror::value_corrupted_while_stopped_keeps_its_last_good_state";
    isolated(test, |lab| {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let etcd = Etcd::start(lab)?;
        let web = Service::new("web", 80, &[lab.pod1.host]);
        etcd.put(&web)?;
        let options = AgentOptions::with_store(etcd.url());
        let agent = Agent::start(lab, &options)?;
        agent.wait_until_saved()?;
        agent.stop()?;
        etcd.put_value(&Etcd::key(&web), r#"{"name":"web","port":[{"#)?;
        for _ in 0..2 {
            let agent = Agent::start(lab, &options)?;
            assert!(
                is_answered(lab, &web, "pod1"),
                "it is applied after every start"
            );
            // The start is from the saved state; what was changed meanwhile follows.
            wait_until("the value in quarantine", EVENT_TIMEOUT, || {
                agent.http("GET", "/quarantine").is_ok_and(|answer| {
                    answer.body.contains(&Etcd::key(&web)) && answer.body.contains("last good")
                })
            })?;
            assert!(is_answered(lab, &web, "pod1"), "it is still active");
            agent.wait_until_saved()?;
            agent.stop()?;
        }
        Ok(())
    })
}

#[test]
fn damaged_mirror_is_quarantined_and_replaced() -> Result<()> {
    isolated(
        "mirror::damaged_mirror_is_quarantined_and_replaced",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let mut etcd = Etcd::start(lab)?;
            let web = Service::new("web", 80, &[lab.pod1.host]);
            etcd.put(&web)?;
            let options = AgentOptions::with_store(etcd.url());
            let agent = Agent::start(lab, &options)?;
            agent.wait_until_saved()?;
            agent.stop()?;
            let folder = scratch("agent-state")?;
            let file = folder.join("mirror.redb");
            lab.node
                .exec(&["truncate", "--size=-5000", &file.to_string_lossy()])?;

            // While the store is reachable, the file is not needed, and a new one is written.
            let agent = Agent::start(lab, &options)?;
            assert!(is_answered(lab, &web, "pod1"));
            agent.wait_until_saved()?;
            assert!(folder.join("mirror.redb.damaged").exists());
            agent.stop()?;
            etcd.kill()?;
            clear_kernel(lab)?;
            let agent = Agent::start(lab, &options)?;
            assert!(is_answered(lab, &web, "pod1"), "the new file is used");
            agent.stop().map(drop)
        },
    )
}

#[test]
fn full_or_read_only_disk_starts_from_the_mirror() -> Result<()> {
    isolated(
        "mirror::full_or_read_only_disk_starts_from_the_mirror",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let mut etcd = Etcd::start(lab)?;
            let web = Service::new("web", 80, &[lab.pod1.host]);
            etcd.put(&web)?;
            let folder = scratch("agent-state")?.to_string_lossy().into_owned();
            let (fill, lock) = (format!("{folder}/fill"), format!("{folder}/agent.lock"));
            lab.node.exec(&["mkdir", "-p", &folder])?;
            lab.node
                .exec(&["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", &folder])?;
            let options = AgentOptions::with_store(etcd.url());
            let agent = Agent::start(lab, &options)?;
            agent.wait_until_saved()?;
            // A killed agent leaves a file that needs a repair.
            agent.kill()?;
            etcd.kill()?;

            let start_from_the_mirror = |what: &str| {
                clear_kernel(lab)?;
                let agent = Agent::start(lab, &options)?;
                assert_eq!(agent.status()?["from_mirror"], true, "{what}");
                assert!(is_answered(lab, &web, "pod1"), "{what}");
                Ok::<_, contiv_tests::lab::LabError>(agent)
            };
            lab.node.exec(&["rm", &lock])?;
            lab.node
                .exec(&["sh", "-c", &format!("cat /dev/zero > {fill} || true")])?;
            start_from_the_mirror("full")?.kill()?;
            lab.node.exec(&["rm", &fill])?;
            lab.node.exec(&["mount", "-o", "remount,ro", &folder])?;
            start_from_the_mirror("read-only")?.kill()?;
            lab.node.exec(&["mount", "-o", "remount,rw", &folder])?;
            lab.node.exec(&["rm", &lock])?;
            lab.node.exec(&["mount", "-o", "remount,ro", &folder])?;
            let agent = start_from_the_mirror("read-only, without a lock file")?;
            let contiv = binary()?.to_string_lossy().into_owned();
            let second = [
                "timeout",
                "10",
                &contiv,
                "agent",
                "--listen=127.0.0.1:0",
                "--state-dir",
                &folder,
            ];
            let refusal = lab
                .node
                .exec(&second)
                .expect_err("one is running")
                .to_string();
            assert!(refusal.contains("another agent"), "{refusal}");

            etcd.start_again()?;
            let moved = Service {
                backends: vec![lab.pod3.host],
                ..web.clone()
            };
            etcd.put(&moved)?;
            agent.wait_until_applied(&moved)?;
            wait_until(
                "the status reports that nothing is saved",
                EVENT_TIMEOUT,
                || {
                    agent
                        .status()
                        .is_ok_and(|status| status["mirror"]["error"].is_string())
                },
            )?;
            lab.node.exec(&["mount", "-o", "remount,rw", &folder])?;
            etcd.put(&web)?;
            agent.wait_until_saved()?;
            assert!(
                !std::path::Path::new(&format!("{folder}/mirror.redb.damaged")).exists(),
                "the file was never damaged"
            );
            agent.stop().map(drop)
        },
    )
}

#[test]
fn manifests_broken_while_stopped_keep_their_saved_state() -> Result<()> {
    isolated(
        "mirror::manifests_broken_while_stopped_keep_their_saved_state",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let manifests = Manifests::new(lab)?;
            let [web, api] =
                [("web", 80), ("api", 81)].map(|(name, n)| Service::new(name, n, &[lab.pod1.host]));
            manifests.put(&web)?;
            manifests.put(&api)?;
            let options = AgentOptions::with_store(manifests.url());
            let agent = Agent::start(lab, &options)?;
            agent.wait_until_saved()?;
            agent.stop()?;
            // One file that cannot be read at all, and one in which only the service is invalid.
            manifests.write("web.yaml", "kind: [")?;
            let broken = "{apiVersion: v1, kind: Service, metadata: {name: api}, spec: {clusterIP: nowhere}}";
            manifests.write("api.yaml", broken)?;
            for _ in 0..2 {
                clear_kernel(lab)?;
                let agent = Agent::start(lab, &options)?;
                assert!(
                    is_answered(lab, &web, "pod1"),
                    "it is applied after every start"
                );
                let api = agent.http("GET", "/services/default/api")?;
                assert_eq!(api.status, 200, "{}", api.body);
                let quarantine = agent.http("GET", "/quarantine")?.body;
                assert!(
                    quarantine.contains("web.yaml") && quarantine.contains("api.yaml"),
                    "{quarantine}"
                );
                agent.wait_until_saved()?;
                agent.stop()?;
            }

            let agent = Agent::start(lab, &options)?;
            let moved = Service {
                backends: vec![lab.pod3.host],
                ..web.clone()
            };
            manifests.put(&moved)?;
            agent.wait_until_applied(&moved)?;
            manifests.write("api.yaml", "")?;
            agent.wait_until_gone(&api)?;
            assert!(is_answered(lab, &web, "pod3"));
            agent.stop().map(drop)
        },
    )
}

#[test]
fn services_with_same_address_keep_their_winner_over_restart() -> Result<()> {
    isolated(
        "mirror::services_with_same_address_keep_their_winner_over_restart",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let manifests = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod1.host]);
            let api = Service {
                name: "api",
                backends: vec![lab.pod3.host],
                ..web.clone()
            };
            manifests.put(&web)?;
            let options = AgentOptions::with_store(manifests.url());
            let agent = Agent::start(lab, &options)?;
            assert!(is_answered(lab, &web, "pod1"));
            manifests.put(&api)?;
            agent.wait_until_applied(&api)?;
            // Neither has a creation time, so the smaller name wins.
            assert!(is_answered(lab, &web, "pod3"));
            agent.stop()?;
            let agent = Agent::start(lab, &options)?;
            assert!(is_answered(lab, &web, "pod3"));
            agent.stop().map(drop)
        },
    )
}
