//! The commands agree with the running agent.

use std::time::Duration;

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Etcd, Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{Family, Lab, LabError, Outcome, Protocol, Responder, Result, isolated},
};

fn contiv(lab: &Lab, arguments: &[&str]) -> Result<String> {
    lab.node.exec(&[&[&*binary()?.to_string_lossy()], arguments].concat())
}

#[test]
fn applied_and_deleted_manifests_reach_the_kernel() -> Result<()> {
    isolated("command_line::applied_and_deleted_manifests_reach_the_kernel", |lab| {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let (etcd, manifests) = (Etcd::start(lab)?, Manifests::new(lab)?);
        let agent = Agent::start(lab, &AgentOptions::with_open_table(etcd.url()))?;
        let web = Service::new("web", 80, &[lab.pod1.host, lab.pod3.host]);
        manifests.put(&web)?;
        contiv(lab, &["apply", "--store", &etcd.url(), "-f", &manifests.folder()])?;
        agent.wait_until_applied(&web)?;
        for (frontend, family) in
            Frontend::ALL.into_iter().flat_map(|f| Family::BOTH.map(|family| (f, family)))
        {
            lab.client.ask(Protocol::Tcp, web.address(lab, frontend, family))?.answer()?;
        }
        let printed = contiv(lab, &["get", "--store", &etcd.url(), "svc", "web", "-o", "yaml"])?;
        assert!(printed.contains("kind: Service") && printed.contains("name: web"), "{printed}");

        contiv(lab, &["delete", "--store", &etcd.url(), "svc", "web"])?;
        agent.wait_until_gone(&web)?;
        let address = web.address(lab, Frontend::NodePort, Family::V4);
        let outcome = lab.client.ask_within(Protocol::Tcp, address, Duration::from_millis(100))?;
        outcome.refusal()?;
        Ok(())
    })
}

#[test]
fn forwarding_that_is_off_is_named_by_status() -> Result<()> {
    isolated("command_line::forwarding_that_is_off_is_named_by_status", |lab| {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let state = Manifests::new(lab)?;
        let web = Service::new("web", 80, &[lab.pod1.host]);
        state.put(&web)?;
        let set = |value: &str| {
            let script = format!("echo {value} >/proc/sys/net/ipv4/ip_forward");
            lab.node.exec(&["sh", "-c", &script])
        };
        set("0")?;
        let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
        let address = web.address(lab, Frontend::NodePort, Family::V4);
        let is_answered = || {
            let outcome = lab.client.ask_within(Protocol::Tcp, address, Duration::from_secs(1))?;
            Ok::<_, LabError>(matches!(outcome, Outcome::Answered { .. }))
        };
        assert!(!is_answered()?);
        let status = contiv(lab, &["status"])?;
        assert!(status.contains("nftables: net.ipv4.ip_forward is 0: pods and external clients"), "{status}");
        assert!(!status.contains("ipv6"), "IPv6 is forwarded:\n{status}");

        set("1")?;
        // Any change of a service triggers another check.
        state.put(&Service::new("db", 81, &[lab.pod1.host]))?;
        agent.wait_until_applied(&Service::new("db", 81, &[lab.pod1.host]))?;
        assert!(is_answered()?);
        let status = contiv(lab, &["status"])?;
        assert!(!status.contains("ip_forward"), "{status}");
        Ok(())
    })
}

#[test]
fn rendered_rules_are_those_that_agent_programs() -> Result<()> {
    isolated("command_line::rendered_rules_are_those_that_agent_programs", |lab| {
        let manifests = Manifests::new(lab)?;
        manifests.put(&Service::new("web", 80, &[lab.pod1.host, lab.pod3.host]))?;
        manifests.put(&Service::new("db", 81, &[lab.pod2.host]))?;
        manifests.put(&Service::new("empty", 82, &[]))?;
        let _agent = Agent::start(lab, &AgentOptions::with_open_table(manifests.url()))?;
        let rendered = contiv(
            lab,
            &["render", "-o", "nft", "--node-name", lab.node.host.name, "-f", &manifests.folder()],
        )?;
        // The other node has no agent: nft itself loads the text there.
        lab.node2.exec_with_input(&["nft", "-f", "-"], &rendered)?;
        let list = ["nft", "--stateless", "list", "ruleset"];
        assert_eq!(lab.node2.exec(&list)?, lab.node.exec(&list)?);
        Ok(())
    })
}
