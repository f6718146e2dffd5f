//! The commands agree with the running agent.

use std::time::Duration;

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Etcd, Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{Family, Host, Lab, LabError, Outcome, Protocol, Responder, Result, isolated},
};

fn contiv(lab: &Lab, arguments: &[&str]) -> Result<String> {
    lab.node
        .exec(&[&[&*binary()?.to_string_lossy()], arguments].concat())
}

#[test]
fn applied_and_deleted_manifests_reach_the_kernel() -> Result<()> {
    isolated(
        "command_line::applied_and_deleted_manifests_reach_the_kernel",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let (etcd, manifests) = (Etcd::start(lab)?, Manifests::new(lab)?);
            let agent = Agent::start(lab, &AgentOptions::with_open_table(etcd.url()))?;
            let web = Service::new("web", 80, &[lab.pod1.host, lab.pod3.host]);
            manifests.put(&web)?;
            contiv(
                lab,
                &["apply", "--store", &etcd.url(), "-f", &manifests.folder()],
            )?;
            agent.wait_until_applied(&web)?;
            for (frontend, family) in Frontend::ALL
                .into_iter()
                .flat_map(|f| Family::BOTH.map(|family| (f, family)))
            {
                lab.client
                    .ask(Protocol::Tcp, web.address(lab, frontend, family))?
                    .answer()?;
            }
            let printed = contiv(
                lab,
                &["get", "--store", &etcd.url(), "svc", "web", "-o", "yaml"],
            )?;
            assert!(
                printed.contains("kind: Service") && printed.contains("name: web"),
                "{printed}"
            );

            contiv(lab, &["delete", "--store", &etcd.url(), "svc", "web"])?;
            agent.wait_until_gone(&web)?;
            let address = web.address(lab, Frontend::NodePort, Family::V4);
            let outcome =
                lab.client
                    .ask_within(Protocol::Tcp, address, Duration::from_millis(100))?;
            outcome.refusal()?;
            Ok(())
        },
    )
}

/// Whatever is programmed: the settings are read when someone asks.
#[test]
fn forwarding_that_is_turned_off_later_is_named() -> Result<()> {
    isolated(
        "command_line::forwarding_that_is_turned_off_later_is_named",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod1.host]);
            state.put(&web)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            let settings = [
                ("ipv4/ip_forward", "net.ipv4.ip_forward", Family::V4, "IPv4"),
                (
                    "ipv4/conf/eth0/forwarding",
                    "net.ipv4.conf.eth0.forwarding",
                    Family::V4,
                    "IPv4",
                ),
                (
                    "ipv6/conf/all/forwarding",
                    "net.ipv6.conf.all.forwarding",
                    Family::V6,
                    "IPv6",
                ),
            ];
            let status = contiv(lab, &["status"])?;
            assert!(status.contains("agent     ready ("), "{status}");
            for (path, setting, family, name) in settings {
                let set = |value: &str| {
                    lab.node
                        .exec(&["sh", "-c", &format!("echo {value} >/proc/sys/net/{path}")])
                };
                let address = web.address(lab, Frontend::NodePort, family);
                let is_answered = || {
                    let outcome =
                        lab.client
                            .ask_within(Protocol::Tcp, address, Duration::from_secs(1))?;
                    Ok::<_, LabError>(matches!(outcome, Outcome::Answered { .. }))
                };
                assert!(is_answered()?, "{setting}");
                let message = format!("{setting} is 0: ");
                let trace = |from: &Host| {
                    let (from, to) = (from.address(family).to_string(), address.to_string());
                    contiv(lab, &["trace", "--from", &from, "--to", &to])
                };
                let metrics = || Ok::<_, LabError>(agent.http("GET", "/metrics")?.body);
                let gauge = format!("contiv_forwarding_off{{ip_family=\"{name}\"}}");

                set("0")?;
                assert!(!is_answered()?, "{setting}");
                // Its exit code is 1.
                let status = contiv(lab, &["status"])
                    .err()
                    .map(|error| error.to_string())
                    .unwrap_or_default();
                assert!(
                    status.contains("ready, but see below") && status.contains(&message),
                    "{setting}:\n{status}"
                );
                let others = settings.iter().filter(|other| other.1 != setting);
                for (_, other, ..) in others {
                    assert!(
                        !status.contains(&format!("{other} is 0")),
                        "{setting}:\n{status}"
                    );
                }
                assert!(
                    trace(lab.client.host)?.contains(&message),
                    "{}",
                    trace(lab.client.host)?
                );
                assert!(
                    !trace(lab.node.host)?.contains(&message),
                    "the node's own packets are not forwarded"
                );
                assert!(
                    metrics()?.contains(&format!("{gauge} 1\n")),
                    "{}",
                    metrics()?
                );
                assert!(
                    agent.http("GET", "/")?.body.contains(&message),
                    "the page says so too"
                );

                set("1")?;
                assert!(is_answered()?, "{setting}");
                let status = contiv(lab, &["status"])?;
                assert!(
                    status.contains("agent     ready (") && !status.contains("forward"),
                    "{setting}:\n{status}"
                );
                assert!(
                    !trace(lab.client.host)?.contains("forward"),
                    "{}",
                    trace(lab.client.host)?
                );
                assert!(
                    metrics()?.contains(&format!("{gauge} 0\n")),
                    "{}",
                    metrics()?
                );
            }
            // Nothing needs it.
            state.delete(&web)?;
            agent.wait_until_gone(&web)?;
            lab.node
                .exec(&["sh", "-c", "echo 0 >/proc/sys/net/ipv4/ip_forward"])?;
            let status = contiv(lab, &["status"])?;
            assert!(status.contains("agent     ready ("), "{status}");
            Ok(())
        },
    )
}

#[test]
fn top_sorts_and_ends_by_keys() -> Result<()> {
    isolated("command_line::top_sorts_and_ends_by_keys", |lab| {
        let state = Manifests::new(lab)?;
        let [web, empty] = [
            Service::new("web", 80, &[lab.pod1.host]),
            Service::new("empty", 81, &[]),
        ];
        state.put(&web)?;
        state.put(&empty)?;
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
        lab.client
            .ask(
                Protocol::Tcp,
                web.address(lab, Frontend::NodePort, Family::V4),
            )?
            .answer()?;
        for _ in 0..2 {
            lab.client
                .ask(
                    Protocol::Tcp,
                    empty.address(lab, Frontend::NodePort, Family::V4),
                )?
                .refusal()?;
        }
        // On a terminal of its own, with a key each second or two.
        let keys = |keys: &str| {
            let typed: Vec<String> = keys
                .chars()
                .map(|key| format!("sleep 2; printf %s '{key}'"))
                .collect();
            let typed = typed.join("; ");
            let contiv = binary()?;
            let line = format!(
                "({typed}) | TERM=xterm script -qec '{} top' /dev/null",
                contiv.display()
            );
            lab.node.exec(&["sh", "-c", &line])
        };
        let screen = keys("sq")?;
        assert!(
            screen.contains("s sorted by: rate   / name   q quit"),
            "{screen}"
        );
        assert!(screen.contains("s sorted by: connections"), "{screen}");
        let screen = keys("/w\r\x1b")?;
        assert!(
            screen.contains("/ name: w_") && screen.contains("/ name: w   q quit"),
            "{screen}"
        );
        let first = |order: &str| {
            let printed = contiv(lab, &["top", "--once", "-o", "name", "--sort-by", order])?;
            Ok::<_, LabError>(printed.lines().next().unwrap_or_default().to_owned())
        };
        assert_eq!(
            (first("refused")?.as_str(), first("connections")?.as_str()),
            ("default/empty", "default/web")
        );
        Ok(())
    })
}

#[test]
fn rendered_rules_are_those_that_agent_programs() -> Result<()> {
    isolated(
        "command_line::rendered_rules_are_those_that_agent_programs",
        |lab| {
            let manifests = Manifests::new(lab)?;
            manifests.put(&Service::new("web", 80, &[lab.pod1.host, lab.pod3.host]))?;
            manifests.put(&Service::new("db", 81, &[lab.pod2.host]))?;
            manifests.put(&Service::new("empty", 82, &[]))?;
            let _agent = Agent::start(lab, &AgentOptions::with_open_table(manifests.url()))?;
            let rendered = contiv(
                lab,
                &[
                    "render",
                    "-o",
                    "nft",
                    "--node-name",
                    lab.node.host.name,
                    "-f",
                    &manifests.folder(),
                ],
            )?;
            // The other node has no agent: nft itself loads the text there.
            lab.node2.exec_with_input(&["nft", "-f", "-"], &rendered)?;
            let list = ["nft", "--stateless", "list", "ruleset"];
            assert_eq!(lab.node2.exec(&list)?, lab.node.exec(&list)?);
            Ok(())
        },
    )
}
