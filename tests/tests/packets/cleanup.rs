//! The agent's objects in the kernel are its own, and `contiv cleanup` removes exactly those.

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{Family, Lab, Protocol, Responder, Result, isolated},
};

/// Tables of other programs on the same hooks as ours, with their own NAT.
const FOREIGN: &str = "
table ip nat {
    chain PREROUTING {
        type nat hook prerouting priority dstnat; policy accept;
        tcp dport 9 dnat to 192.0.2.9
    }
}
table inet foreign {
    map services4 {
        type ipv4_addr : ipv4_addr
        elements = { 10.96.0.1 : 10.244.1.10 }
    }
    chain input {
        type filter hook input priority filter; policy accept;
        tcp dport 9 counter drop
    }
}
";

fn ruleset(lab: &Lab) -> Result<String> {
    lab.node.exec(&["nft", "--stateless", "list", "ruleset"])
}

fn clean_up(lab: &Lab) -> Result<String> {
    lab.node.exec(&[&binary()?.to_string_lossy(), "cleanup"])
}

#[test]
fn cleanup_removes_everything_of_contiv() -> Result<()> {
    isolated("cleanup::cleanup_removes_everything_of_contiv", |lab| {
        let _responder = Responder::start(&lab.pod1, TARGET_PORT)?;
        let state = Manifests::new(lab)?;
        let web = Service::new("web", 80, &[lab.pod1.host]);
        state.put(&web)?;
        Agent::start(lab, &AgentOptions::with_store(state.url()))?.stop()?;
        assert_ne!(ruleset(lab)?, "", "SIGTERM leaves the dataplane in place");
        clean_up(lab)?;
        assert_eq!(ruleset(lab)?, "");
        let address = web.address(lab, Frontend::NodePort, Family::V4);
        lab.client.ask(Protocol::Tcp, address)?.refusal()?;
        // Nothing to do is not an error.
        clean_up(lab)?;
        Ok(())
    })
}

#[test]
fn foreign_tables_survive_agent_and_its_cleanup() -> Result<()> {
    isolated(
        "cleanup::foreign_tables_survive_agent_and_its_cleanup",
        |lab| {
            let _responder = Responder::start(&lab.pod1, TARGET_PORT)?;
            lab.node.exec_with_input(&["nft", "-f", "-"], FOREIGN)?;
            let before = ruleset(lab)?;
            let state = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod1.host]);
            state.put(&web)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            let answer = lab
                .client
                .ask(
                    Protocol::Tcp,
                    web.address(lab, Frontend::NodePort, Family::V4),
                )?
                .answer()?;
            assert_eq!(answer.by, "pod1");
            assert!(
                ruleset(lab)?.contains(before.trim()),
                "the foreign tables are listed as before, first of all"
            );
            agent.stop()?;
            clean_up(lab)?;
            assert_eq!(ruleset(lab)?, before);
            Ok(())
        },
    )
}
