//! `contiv trace --kernel` in typical situations: the desired state, the kernel's content, and the differences.

use std::process::{Command, Output};

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Frontend, Manifests, Service, ServiceManifest, State, TARGET_PORT},
    lab::{Family, Lab, LabError, Protocol, Responder, Result, isolated},
};
use serde_json::Value;

/// The output of `contiv trace --kernel` on the node, and its exit code.
#[derive(Debug)]
struct Run {
    code: Option<i32>,
    out: String,
    err: String,
}

/// Runs it with these words before the command and these arguments after the flow from a pod of the node to a cluster IP.
fn trace_behind(lab: &Lab, before: &[&str], service: &Service, arguments: &[&str]) -> Result<Run> {
    trace_from(
        lab,
        before,
        &format!("{}%pod2", lab.pod2.host.v4),
        service,
        arguments,
    )
}

/// The same from another client.
fn trace_from(
    lab: &Lab,
    before: &[&str],
    from: &str,
    service: &Service,
    arguments: &[&str],
) -> Result<Run> {
    let to = service
        .address(lab, Frontend::ClusterIp, Family::V4)
        .to_string();
    let binary = binary()?.to_string_lossy().into_owned();
    let command = [
        before,
        &[&binary, "trace", "--kernel", "--from", from, "--to", &to],
        arguments,
    ]
    .concat();
    let output = lab.node.run(|| {
        Command::new(command[0])
            .args(&command[1..])
            .env_remove("CONTIV_NODE_NAME")
            .output()
            .map_err(|error| LabError::Unexpected(format!("{command:?}: {error}")))
    });
    let Output {
        status,
        stdout,
        stderr,
    } = output?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Run {
        code: status.code(),
        out: text(stdout),
        err: text(stderr),
    })
}

fn trace(lab: &Lab, service: &Service, arguments: &[&str]) -> Result<Run> {
    trace_behind(lab, &[], service, arguments)
}

/// A service with a backend on this node and one on another.
fn web(lab: &Lab) -> Service {
    Service::new("web", 80, &[lab.pod1.host, lab.pod3.host])
}

#[test]
fn correct_kernel_agrees_with_agent_and_manifests() -> Result<()> {
    isolated(
        "kernel_trace::correct_kernel_agrees_with_agent_and_manifests",
        |lab| {
            let state = Manifests::new(lab)?;
            state.put(&web(lab))?;
            let _agent = Agent::start(lab, &AgentOptions::with_open_table(state.url()))?;
            let folder = state.folder();
            for node_arguments in [&[][..], &["--node-name", lab.node.host.name, "-f", &folder]] {
                let run = trace(lab, &web(lab), node_arguments)?;
                assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{run:?}");
                for part in [
                    "DESIRED\nflow      10.244.1.11%pod2 to 10.96.0.80:80/tcp",
                    "IN THE KERNEL\nclient    a pod of this node, by its address\nverdict   SERVED by one of 2 backends\n",
                    "backend   10.244.1.10:8080  50.0 %, 1 slot, source kept",
                    "NO DIFFERENCE",
                ] {
                    assert!(run.out.contains(part), "{part} is not in:\n{}", run.out);
                }
                let run = trace(lab, &web(lab), &[node_arguments, &["-o", "json"]].concat())?;
                let json: Value = serde_json::from_str(&run.out)
                    .map_err(|error| LabError::Unexpected(error.to_string()))?;
                assert_eq!(
                    (run.code, &json["differences"]),
                    (Some(0), &Value::Array(vec![])),
                    "{json:#}"
                );
                assert_eq!(json["desired"]["hit"]["service"], "default/web", "{json:#}");
                assert_eq!(
                    json["kernel"]["shares"][1]["ending"]["served"]["backend"], "10.244.2.10:8080",
                    "{json:#}"
                );
            }
            Ok(())
        },
    )
}

#[test]
fn blocking_route_is_reported() -> Result<()> {
    isolated("kernel_trace::blocking_route_is_reported", |lab| {
        let state = Manifests::new(lab)?;
        state.put(&web(lab))?;
        let _agent = Agent::start(lab, &AgentOptions::with_open_table(state.url()))?;
        let from_node = || trace_from(lab, &[], &lab.node.host.v4.to_string(), &web(lab), &[]);
        let before = from_node()?;
        assert!(
            before.code == Some(0) && before.out.contains("NO DIFFERENCE"),
            "{before:?}"
        );
        let address = web(lab)
            .address(lab, Frontend::ClusterIp, Family::V4)
            .ip()
            .to_string();
        lab.node
            .exec(&["ip", "route", "add", "unreachable", &address])?;
        let after = from_node()?;
        let expected =
            format!("this node itself has no route to {address}, or one that leads nowhere");
        assert!(
            after.code == Some(1) && after.out.contains(&expected),
            "{after:?}"
        );
        assert!(
            after.out.contains("No resync makes that route")
                && !after.out.contains("`contiv resync`"),
            "{after:?}"
        );
        let of_pod = trace(lab, &web(lab), &[])?;
        assert_eq!(
            of_pod.code,
            Some(0),
            "its packets are translated first: {of_pod:?}"
        );
        Ok(())
    })
}

#[test]
fn remembered_backend_of_the_client_is_reported() -> Result<()> {
    isolated(
        "kernel_trace::remembered_backend_of_the_client_is_reported",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            state.put_manifest(&ServiceManifest {
                affinity: Some(600),
                ..ServiceManifest::new(web(lab))
            })?;
            let _agent = Agent::start(lab, &AgentOptions::with_open_table(state.url()))?;
            let before = trace(lab, &web(lab), &[])?;
            assert!(
                before.code == Some(0) && !before.out.contains("remembered:"),
                "{before:?}"
            );

            let address = web(lab).address(lab, Frontend::ClusterIp, Family::V4);
            let answer = lab.pod2.ask(Protocol::Tcp, address)?.answer()?;
            let pods = lab.pods();
            let by = pods
                .iter()
                .find(|pod| pod.host.name == answer.by)
                .map(|pod| pod.host.v4);
            let expected = by.map(|by| {
                format!("this client has an affinity entry: its next connection goes to {by}:8080")
            });
            let after = trace(lab, &web(lab), &[])?;
            assert!(
                after.code == Some(0)
                    && expected.is_some_and(|expected| after.out.contains(&expected)),
                "{after:?}"
            );
            Ok(())
        },
    )
}

/// A manual change of the table, and the expected output.
type ManualChange = (&'static [&'static str], &'static [&'static str]);

const MANUAL_CHANGES: [ManualChange; 9] = [
    (
        &["delete element inet contiv services4 { 10.96.0.80 . tcp . 80 }"],
        &["- the connection should reach a backend, but is rejected by an element of cluster-ips4"],
    ),
    (
        &[
            "delete element inet contiv backends4 { 10.96.0.80 . tcp . 80 . 1 }",
            "add element inet contiv backends4 { 10.96.0.80 . tcp . 80 . 1 : 192.0.2.1 . 80 }",
        ],
        &[
            "- no connection reaches 10.244.2.10:8080, which should get 50.0 % of them",
            "- 50.0 % of connections go to 192.0.2.1:80, which should not get any",
        ],
    ),
    (
        &["flush set inet contiv no-masquerade4"],
        &["- 10.244.1.10:8080 sees this node's address, but should see the client's"],
    ),
    (
        &[
            "delete element inet contiv services4 { 10.96.0.80 . tcp . 80 }",
            "add element inet contiv services4 { 10.96.0.80 . tcp . 80 : 6000:1 }",
        ],
        &["has an unknown outcome: services4 has an element for it that contiv never writes"],
    ),
    (
        &["flush table inet contiv"],
        &[
            "- chain services-v4 has 0 rules instead of 2",
            "- chain pick-v4-2 has 0 rules instead of 1",
        ],
    ),
    (
        &["insert rule inet contiv nat-prerouting accept"],
        &["- chain nat-prerouting has 3 rules instead of 2"],
    ),
    (
        &[
            "flush chain inet contiv unknown-port",
            "add rule inet contiv unknown-port ip daddr @cluster-ips4 goto reject-now",
            "add rule inet contiv unknown-port ip6 daddr @cluster-ips6 goto reject-now",
            "add rule inet contiv unknown-port ip daddr != @service-cidrs4 drop",
            "add rule inet contiv unknown-port ip6 daddr @service-cidrs6 drop",
        ],
        &["- rule 3 of chain unknown-port is not the one that contiv writes"],
    ),
    (
        &["delete chain inet contiv external-postrouting"],
        &["- chain external-postrouting is missing"],
    ),
    (
        &["add chain inet contiv mine"],
        &["- chain mine in the table is not one of contiv's"],
    ),
];

#[test]
fn manual_changes_of_the_table_are_named() -> Result<()> {
    isolated(
        "kernel_trace::manual_changes_of_the_table_are_named",
        |lab| {
            let state = Manifests::new(lab)?;
            state.put(&web(lab))?;
            let folder = state.folder();
            let manifests = ["--node-name", lab.node.host.name, "-f", &folder];
            for (damage, expected) in MANUAL_CHANGES {
                // Each start of an agent repairs the table. After it has stopped, nothing does.
                Agent::start(lab, &AgentOptions::with_open_table(state.url()))?.stop()?;
                let before = trace(lab, &web(lab), &manifests)?;
                assert_eq!(before.code, Some(0), "before {damage:?}: {before:?}");
                lab.node
                    .exec_with_input(&["nft", "-f", "-"], &damage.join("\n"))?;
                let run = trace(lab, &web(lab), &manifests)?;
                assert_eq!(
                    (run.code, run.err.as_str()),
                    (Some(1), ""),
                    "{damage:?}: {run:?}"
                );
                for words in expected {
                    assert!(
                        run.out.contains(words),
                        "{damage:?}: {words} is not in:\n{}",
                        run.out
                    );
                }
                assert!(
                    run.out.contains("`contiv resync` makes it right"),
                    "{}",
                    run.out
                );
            }
            Ok(())
        },
    )
}

#[test]
fn missing_table_or_permission_is_named_with_a_hint() -> Result<()> {
    isolated(
        "kernel_trace::missing_table_or_permission_is_named_with_a_hint",
        |lab| {
            let state = Manifests::new(lab)?;
            state.put(&web(lab))?;
            let folder = state.folder();
            let manifests = ["--node-name", lab.node.host.name, "-f", &folder];
            let fails = |run: &Run, parts: &[&str]| {
                assert_eq!((run.code, run.out.as_str()), (Some(1), ""), "{run:?}");
                for part in parts {
                    assert!(run.err.contains(part), "{part} is not in: {}", run.err);
                }
            };
            let parts = [
                "no table inet contiv",
                "does the agent run",
                "POST /controller/resync",
            ];
            fails(&trace(lab, &web(lab), &manifests)?, &parts);
            lab.node.exec(&["nft", "add", "table", "inet", "contiv"])?;
            fails(
                &trace(lab, &web(lab), &manifests)?,
                &["other sets or base chains", "POST /controller/resync"],
            );
            let unprivileged = ["setpriv", "--bounding-set", "-net_admin"];
            fails(
                &trace_behind(lab, &unprivileged, &web(lab), &manifests)?,
                &[
                    "CAP_NET_ADMIN is not in these sets of user 0: bounding",
                    "the process may not have it",
                ],
            );
            Ok(())
        },
    )
}

#[test]
fn change_on_its_way_to_kernel_is_no_difference() -> Result<()> {
    isolated(
        "kernel_trace::change_on_its_way_to_kernel_is_no_difference",
        |lab| {
            let state = Manifests::new(lab)?;
            state.put(&web(lab))?;
            let _agent = Agent::start(lab, &AgentOptions::with_open_table(state.url()))?;
            let rest = Service::new("web", 80, &[lab.pod3.host]);
            for service in [&rest, &web(lab)].into_iter().cycle().take(8) {
                state.put(service)?;
                // The agent may know the change already while the kernel does not have it yet.
                let run = trace(lab, service, &[])?;
                assert_eq!(run.code, Some(0), "{run:?}");
            }
            Ok(())
        },
    )
}

#[test]
fn foreign_tables_on_the_path_are_named_with_their_drops() -> Result<()> {
    isolated(
        "kernel_trace::foreign_tables_on_the_path_are_named_with_their_drops",
        |lab| {
            let state = Manifests::new(lab)?;
            state.put(&web(lab))?;
            let _agent = Agent::start(lab, &AgentOptions::with_open_table(state.url()))?;
            let run = trace(lab, &web(lab), &[])?;
            assert!(
                run.code == Some(0) && !run.out.contains("OTHER TABLES"),
                "{run:?}"
            );

            let firewall = "
            table inet firewall {
                chain checked { tcp dport 8080 drop; udp dport 53 reject; ct state invalid drop; };
                chain forward { type filter hook forward priority -5; policy accept; jump checked; };
            }
            table ip strict { chain out { type filter hook postrouting priority 7; policy drop; accept; }; }
            table inet counters { chain in { type filter hook prerouting priority -200; counter; }; }
            table ip6 six { chain in { type filter hook prerouting priority 0; drop; }; }
            table inet none { chain idle { drop; }; }";
            lab.node.exec_with_input(&["nft", "-f", "-"], firewall)?;
            let run = trace(lab, &web(lab), &[])?;
            assert_eq!(
                run.code,
                Some(0),
                "what others do is no difference: {run:?}"
            );
            let expected = "
OTHER TABLES that packets may pass, before and after contiv's:
  prerouting    -200  table inet counters, chain in: drops nothing
  forward         -5  table inet firewall, chain forward: 3 rules of its table may drop or reject
  postrouting      7  table ip strict, chain out: drops by its policy

NO DIFFERENCE";
            assert!(run.out.contains(expected), "{}", run.out);
            Ok(())
        },
    )
}
