//! What commands say on a node whose agent does not run, or does not answer.

use std::process::{Command, Output};

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{Family, Lab, LabError, Protocol, Responder, Result, isolated},
};

/// The error of `contiv status` on the node, which has to fail.
fn status_error(lab: &Lab) -> Result<String> {
    let binary = binary()?;
    let output = lab.node.run(|| {
        Command::new(&binary)
            .args(["status", "--agent", "127.0.0.1:9999"])
            .output()
            .map_err(|error| LabError::Unexpected(format!("contiv status: {error}")))
    });
    let Output {
        status,
        stdout,
        stderr,
    } = output?;
    let error = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(
        (status.code(), stdout.as_slice()),
        (Some(1), &b""[..]),
        "{error}"
    );
    assert!(error.trim_end().lines().count() <= 2, "{error}");
    Ok(error)
}

#[test]
fn commands_tell_whether_rules_are_left_in_kernel() -> Result<()> {
    isolated(
        "absent_agent::commands_tell_whether_rules_are_left_in_kernel",
        |lab| {
            let _responder = Responder::start(&lab.pod1, TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let without_rules = "No nftables rules of contiv are in the kernel: connections to services fail unless";
            let never = status_error(lab)?;
            assert!(
                never.contains("is the agent running?") && never.contains(without_rules),
                "{never}"
            );
            Agent::start(lab, &AgentOptions::with_open_table(state.url()))?.stop()?;
            let empty = status_error(lab)?;
            assert!(empty.contains(without_rules), "{empty}");

            let web = Service::new("web", 80, &[lab.pod1.host]);
            state.put(&web)?;
            let address = web.address(lab, Frontend::NodePort, Family::V4);
            Agent::start(lab, &AgentOptions::with_open_table(state.url()))?.stop()?;
            let stopped = status_error(lab)?;
            let left = "The rules of contiv are still in the kernel and serve as last programmed";
            assert!(
                stopped.contains("is the agent running?") && stopped.contains(left),
                "{stopped}"
            );
            lab.client.ask(Protocol::Tcp, address)?.answer()?;

            lab.node
                .exec(&["nft", "flush", "table", "inet", "contiv"])?;
            let flushed = status_error(lab)?;
            assert!(
                flushed.contains("another program changed them"),
                "{flushed}"
            );
            lab.node.exec(&[&binary()?.to_string_lossy(), "cleanup"])?;
            let removed = status_error(lab)?;
            assert!(removed.contains(without_rules), "{removed}");
            lab.client.ask(Protocol::Tcp, address)?.refusal()?;
            Ok(())
        },
    )
}

#[test]
fn paused_agent_is_named_and_its_rules_serve() -> Result<()> {
    isolated(
        "absent_agent::paused_agent_is_named_and_its_rules_serve",
        |lab| {
            let _responder = Responder::start(&lab.pod1, TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod1.host]);
            state.put(&web)?;
            let agent = Agent::start(lab, &AgentOptions::with_open_table(state.url()))?;
            agent.pause()?;
            let error = status_error(lab)?;
            let expected = format!(
                "is stopped (state T), its process {}, by a signal or a debugger",
                agent.id()
            );
            assert!(
                error.contains(&expected) && error.contains("serve as last programmed"),
                "{error}"
            );
            lab.client
                .ask(
                    Protocol::Tcp,
                    web.address(lab, Frontend::NodePort, Family::V4),
                )?
                .answer()?;
            agent.resume()
        },
    )
}
