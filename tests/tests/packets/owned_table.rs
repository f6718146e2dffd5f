//! A table owned by the agent: other processes cannot change or remove it, and it outlives the agent.

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{Family, Lab, Outcome, Protocol, Responder, Result, isolated, need_linux},
};

fn is_answered(lab: &Lab, service: &Service) -> Result<bool> {
    let outcome = lab.client.ask(
        Protocol::Tcp,
        service.address(lab, Frontend::NodePort, Family::V4),
    )?;
    Ok(matches!(outcome, Outcome::Answered { .. }))
}

fn foreign_changes(agent: &Agent<'_>) -> Result<u64> {
    let renderers = agent.http("GET", "/renderers")?.json()?;
    Ok(renderers[0]["foreign_changes"].as_u64().unwrap_or(u64::MAX))
}

/// A service with a backend, and an agent with the default options.
fn with_agent(
    name: &str,
    test: impl FnOnce(&Lab, &AgentOptions, Agent<'_>, &Service) -> Result<()>,
) -> Result<()> {
    isolated(name, |lab| {
        need_linux((6, 9), "tables that outlive their owner")?;
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let state = Manifests::new(lab)?;
        let web = Service::new("web", 80, &[lab.pod1.host]);
        state.put(&web)?;
        let options = AgentOptions::with_store(state.url());
        let agent = Agent::start(lab, &options)?;
        assert!(is_answered(lab, &web)?);
        test(lab, &options, agent, &web)
    })
}

#[test]
fn owned_table_refuses_foreign_changes_and_survives_a_flush() -> Result<()> {
    let name = "owned_table::owned_table_refuses_foreign_changes_and_survives_a_flush";
    with_agent(name, |lab, _, agent, web| {
        lab.node.exec(&["nft", "add", "table", "inet", "other"])?;
        let before = lab
            .node
            .exec(&["nft", "--stateless", "list", "table", "inet", "contiv"])?;
        lab.node.exec(&["nft", "flush", "ruleset"])?;
        for refused in [
            &["delete", "table", "inet", "contiv"][..],
            &["flush", "map", "inet", "contiv", "services4"],
            &[
                "add",
                "element",
                "inet",
                "contiv",
                "cluster-ips4",
                "{ 192.0.2.1 }",
            ],
            &[
                "insert",
                "rule",
                "inet",
                "contiv",
                "nat-prerouting",
                "accept",
            ],
        ] {
            let error = lab
                .node
                .exec(&[&["nft"], refused].concat())
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("Operation not permitted"),
                "{refused:?}: {error}"
            );
        }
        assert_eq!(
            lab.node
                .exec(&["nft", "--stateless", "list", "table", "inet", "contiv"])?,
            before
        );
        assert!(
            !lab.node.exec(&["nft", "list", "tables"])?.contains("other"),
            "the flush was real"
        );
        assert!(is_answered(lab, web)?);
        assert_eq!(foreign_changes(&agent)?, 0);
        Ok(())
    })
}

#[test]
fn table_outlives_agent_and_next_one_takes_it_over_as_it_is() -> Result<()> {
    with_agent(
        "owned_table::table_outlives_agent_and_next_one_takes_it_over_as_it_is",
        |lab, options, agent, web| {
            // The connections were counted, and the counters of a new table would be zero.
            let counters = || {
                lab.node
                    .exec(&["nft", "list", "map", "inet", "contiv", "services4"])
            };
            let before = counters()?;
            assert!(before.contains("packets 1"), "{before}");
            agent.kill()?;
            assert_eq!(counters()?, before);
            let agent = Agent::start(lab, options)?;
            assert_eq!(counters()?, before);
            assert!(
                lab.node
                    .exec(&["nft", "delete", "table", "inet", "contiv"])
                    .is_err(),
                "it has an owner again"
            );
            agent.stop()?;
            assert!(is_answered(lab, web)?, "it serves without any agent");
            lab.node.exec(&[&binary()?.to_string_lossy(), "cleanup"])?;
            assert!(
                !lab.node
                    .exec(&["nft", "list", "tables"])?
                    .contains("contiv")
            );
            Ok(())
        },
    )
}

#[test]
fn open_table_becomes_owned_and_owned_one_stays_usable() -> Result<()> {
    let name = "owned_table::open_table_becomes_owned_and_owned_one_stays_usable";
    with_agent(name, |lab, owning, agent, web| {
        agent.stop()?;
        let open = AgentOptions::with_open_table(owning.store.clone());
        let flush = || {
            lab.node
                .exec(&["nft", "flush", "map", "inet", "contiv", "services4"])
        };
        for _ in 0..2 {
            let agent = Agent::start(lab, &open)?;
            assert!(is_answered(lab, web)? && flush().is_ok(), "anyone may");
            agent.stop()?;
            let agent = Agent::start(lab, owning)?;
            assert!(
                is_answered(lab, web)? && flush().is_err(),
                "only the agent may"
            );
            agent.stop()?;
            lab.node.exec(&[&binary()?.to_string_lossy(), "cleanup"])?;
        }
        Ok(())
    })
}
