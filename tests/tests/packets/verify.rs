//! Verification: by the command `contiv verify`, and periodically by the agent.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Etcd, Manifests, Service, ServiceManifest, State},
    lab::{Lab, LabError, Result, isolated},
};
use serde_json::Value;
use tempfile::TempDir;

/// Much more than needed, so that a busy machine fails no test.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between the bursts of changes during a verification.
const BURST_PAUSE: Duration = Duration::from_millis(40);

/// The output of `contiv verify` on the node, and its exit code.
#[derive(Debug)]
struct Run {
    code: Option<i32>,
    out: String,
    err: String,
}

fn verify_behind(lab: &Lab, before: &[&str], arguments: &[&str]) -> Result<Run> {
    let binary = binary()?.to_string_lossy().into_owned();
    let command = [before, &[&binary, "verify"], arguments].concat();
    let output = lab.node.run(|| {
        let output = Command::new(command[0]).args(&command[1..]).output();
        output.map_err(|error| LabError::Unexpected(format!("{command:?}: {error}")))
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

/// Without an agent, from a folder of manifests.
fn verify_offline(lab: &Lab, state: &Manifests, arguments: &[&str]) -> Result<Run> {
    let folder = state.folder();
    verify_behind(
        lab,
        &[],
        &[
            &["--node-name", lab.node.host.name, "-f", &folder],
            arguments,
        ]
        .concat(),
    )
}

/// The state of a renderer at `/renderers`.
fn renderer(agent: &Agent<'_>, name: &str) -> Result<Value> {
    let all = agent.http("GET", "/renderers")?.json()?;
    let found = all
        .as_array()
        .into_iter()
        .flatten()
        .find(|renderer| renderer["name"] == name);
    Ok(found.cloned().unwrap_or_default())
}

/// A service, and one with all features that have their own sets.
fn two_services(lab: &Lab) -> Result<Manifests> {
    let state = Manifests::new(lab)?;
    state.put(&Service::new("web", 80, &[lab.pod1.host, lab.pod3.host]))?;
    let sticky = ServiceManifest {
        affinity: Some(600),
        source_ranges: vec!["203.0.113.0/24".to_owned()],
        external_local: true,
        ..ServiceManifest::new(Service::new("db", 81, &[lab.pod1.host]))
    };
    state.put_manifest(&sticky)?;
    Ok(state)
}

#[test]
fn damage_is_named_with_its_service_without_an_agent() -> Result<()> {
    isolated(
        "verify::damage_is_named_with_its_service_without_an_agent",
        |lab| {
            let state = two_services(lab)?;
            let options = AgentOptions::with_open_table(state.url());
            Agent::start(lab, &options)?.stop()?;
            let clean = verify_offline(lab, &state, &[])?;
            assert_eq!(clean.code, Some(0), "{clean:?}");
            assert!(
                clean.out.starts_with("nftables: ")
                    && clean.out.ends_with(" compared, all equal\n")
            );
            let frontend = "10.96.0.80 . tcp . 80";
            let damages: [(&str, [&str; 3]); 14] = [
                (
                    &format!("delete element inet contiv services4 {{ {frontend} }}"),
                    ["missing", "default/web", "map services4"],
                ),
                (
                    &format!("delete element inet contiv backends4 {{ {frontend} . 1 }}"),
                    ["missing", "default/web", "map backends4"],
                ),
                (
                    "add element inet contiv cluster-ips4 { 192.0.2.1 }",
                    ["foreign", "-", "set cluster-ips4"],
                ),
                (
                    "add element inet contiv services4 { 192.0.2.1 . tcp . 80 : 0:1 }",
                    ["foreign", "-", "map services4"],
                ),
                (
                    "add element inet contiv affinity4 { 10.96.0.81 . tcp . 80 . 10.0.0.1 : 192.0.2.9 . 80 }",
                    ["foreign", "default/db", "map affinity4"],
                ),
                (
                    "flush set inet contiv source-ranges4",
                    ["missing", "default/db", "set source-ranges4"],
                ),
                ("flush set inet contiv pods4", ["missing", "-", "set pods4"]),
                (
                    "add element inet contiv pods4 { 198.51.100.0/24 }",
                    ["foreign", "-", "set pods4"],
                ),
                (
                    "flush chain inet contiv services-v4",
                    ["different", "-", "chain services-v4"],
                ),
                (
                    "insert rule inet contiv check-v4 accept",
                    ["different", "-", "chain check-v4"],
                ),
                ("add chain inet contiv theirs", ["foreign", "-", "chains"]),
                (
                    "add set inet contiv theirs { type ipv4_addr; }",
                    ["foreign", "-", "sets"],
                ),
                (
                    "add table inet contiv { flags dormant; }",
                    ["different", "-", "table inet contiv"],
                ),
                ("delete table inet contiv", ["missing", "-", "tables"]),
            ];
            for (damage, words) in damages {
                lab.node.exec_with_input(&["nft", "-f", "-"], damage)?;
                let run = verify_offline(lab, &state, &[])?;
                assert_eq!(run.code, Some(1), "{damage}: {run:?}");
                let is_listed = |line: &str| {
                    let columns: Vec<&str> = line
                        .split("   ")
                        .map(str::trim)
                        .filter(|cell| !cell.is_empty())
                        .collect();
                    columns.get(..3) == Some(&words[..])
                };
                assert!(
                    run.out.lines().any(is_listed),
                    "{damage}: {words:?} is not in\n{}",
                    run.out
                );
                // An agent repairs it.
                Agent::start(lab, &options)?.stop()?;
                let clean = verify_offline(lab, &state, &[])?;
                assert_eq!(clean.code, Some(0), "after {damage}: {clean:?}");
            }
            Ok(())
        },
    )
}

/// A folder with a program `nft` that changes what the real one prints by a script of sed.
fn changed_nft(script: &str) -> Result<TempDir> {
    let failed = |error: std::io::Error| LabError::Unexpected(error.to_string());
    let folder = tempfile::tempdir().map_err(failed)?;
    let path = folder.path().join("nft");
    let real = format!("PATH={}", std::env::var("PATH").unwrap_or_default());
    fs::write(
        &path,
        format!("#!/bin/sh\n{real}\nnft \"$@\" | sed '{script}'\n"),
    )
    .map_err(failed)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    Ok(folder)
}

#[test]
fn verify_agrees_with_nft_and_reports_planted_differences() -> Result<()> {
    isolated(
        "verify::verify_agrees_with_nft_and_reports_planted_differences",
        |lab| {
            let state = two_services(lab)?;
            Agent::start(lab, &AgentOptions::with_open_table(state.url()))?.stop()?;
            let remembered = format!(
                "add element inet contiv affinity4 {{ 10.96.0.81 . tcp . 80 . 192.0.2.7 timeout 10m : {} . 8080 }}",
                lab.pod1.host.v4
            );
            lab.node.exec(&["nft", &remembered])?;
            let clean = verify_offline(lab, &state, &["--nft"])?;
            assert_eq!(clean.code, Some(0), "{clean:?}");
            assert!(
                clean.out.contains("nft: ")
                    && clean.out.contains(" compared, read the same by nft\n"),
                "{clean:?}"
            );

            // The kernel holds what contiv's own reader does not ask for.
            lab.node.exec(&["nft", "add counter inet contiv planted"])?;
            assert_eq!(verify_offline(lab, &state, &[])?.code, Some(0));
            let run = verify_offline(lab, &state, &["--nft"])?;
            assert_eq!(run.code, Some(1), "{run:?}");
            let line = run
                .out
                .lines()
                .find(|line| line.contains("counter planted"));
            assert!(
                line.is_some_and(|line| line.contains("only nft lists it")),
                "{run:?}"
            );
            assert!(
                run.out.contains(" compared, 1 read differently by nft\n"),
                "{run:?}"
            );
            lab.node
                .exec(&["nft", "delete counter inet contiv planted"])?;

            // Both read the same, and one of them says otherwise.
            let frontend = "10.96.0.80 . tcp . 80";
            let planted: [(&str, &[&str]); 4] = [
                (
                    r#"s/"10.96.0.80", "tcp", 80\]/"10.96.0.80", "tcp", 90]/"#,
                    &["map services4", frontend, "nft does not list it"],
                ),
                (
                    r#"s/"prio": -100/"prio": -99/"#,
                    &["chains", "nat-prerouting", "priority -99"],
                ),
                (r#"s/"rule": /"rule2": /2"#, &["chain ", " rules; nft: "]),
                (
                    r#"s/"table": {[^}]*}/"table": {"family": "ip", "name": "filter"}/"#,
                    &["inet contiv", "nft does not"],
                ),
            ];
            let (binary, folder) = (binary()?.to_string_lossy().into_owned(), state.folder());
            for (script, words) in planted {
                let changed = changed_nft(script)?;
                let path = format!("PATH={}", changed.path().display());
                let run = verify_behind(
                    lab,
                    &["env", &path],
                    &["--node-name", lab.node.host.name, "-f", &folder, "--nft"],
                )?;
                assert_eq!(run.code, Some(1), "{script}: {run:?}");
                let is_named = |line: &str| words.iter().all(|word| line.contains(word));
                assert!(
                    run.out.lines().any(is_named),
                    "{script}: {words:?} is not in\n{}",
                    run.out
                );
            }

            // Without nft, everything else is reported.
            let empty =
                tempfile::tempdir().map_err(|error| LabError::Unexpected(error.to_string()))?;
            let path = format!("PATH={}", empty.path().display());
            let run = verify_behind(
                lab,
                &["env", &path],
                &["--node-name", lab.node.host.name, "-f", &folder, "--nft"],
            )?;
            assert_eq!(run.code, Some(1), "{run:?}");
            assert!(
                run.out.starts_with("nftables: ") && run.err.contains("is it installed?"),
                "{run:?}"
            );

            // The support bundle compares too.
            let bundle = empty
                .path()
                .join("bundle.tar.gz")
                .to_string_lossy()
                .into_owned();
            lab.node.exec(&[
                &binary,
                "support-bundle",
                "--agent",
                "http://127.0.0.1:1",
                "-O",
                &bundle,
            ])?;
            let part = [
                "tar",
                "-xzOf",
                &bundle,
                "contiv-support/kernel/verify-nft.json",
            ];
            let report: Value = serde_json::from_str(&lab.node.exec(&part)?)
                .map_err(|error| LabError::Unexpected(error.to_string()))?;
            assert!(
                report["checked"].as_u64() > Some(100) && report["drift"] == serde_json::json!([]),
                "{report:#}"
            );
            Ok(())
        },
    )
}

#[test]
fn routes_are_verified_too_where_agent_programs_them() -> Result<()> {
    isolated(
        "verify::routes_are_verified_too_where_agent_programs_them",
        |lab| {
            let state = Manifests::new(lab)?;
            state.put(&Service::new("web", 80, &[lab.pod1.host]))?;
            let store = state.url();
            let flags = ["--renderers=route", "--route-reach-from-node=true"]
                .map(str::to_owned)
                .to_vec();
            let agent = Agent::start(
                lab,
                &AgentOptions {
                    store: store.clone(),
                    flags,
                },
            )?;
            let run = verify_behind(lab, &[], &["-o", "json"])?;
            let report: Value = serde_json::from_str(&run.out)
                .map_err(|error| LabError::Unexpected(format!("{error}: {run:?}")))?;
            assert_eq!(run.code, Some(0), "{run:?}");
            let routes = report
                .as_array()
                .into_iter()
                .flatten()
                .find(|verified| verified["renderer"] == "route");
            assert!(
                routes.is_some_and(|routes| routes["checked"].as_u64() > Some(3)),
                "{report:#}"
            );
            agent.stop()?;
            state.write(
                "agent.toml",
                "renderers = [\"route\"]\nroute-reach-from-node = true\n",
            )?;
            let config = format!("{}/agent.toml", state.folder());
            let offline = ["--config", config.as_str()];
            assert_eq!(verify_offline(lab, &state, &offline)?.code, Some(0));
            lab.node.exec(&[
                "ip",
                "route",
                "del",
                "10.96.0.80",
                "table",
                "68",
                "proto",
                "67",
            ])?;
            lab.node.exec(&[
                "ip",
                "route",
                "add",
                "blackhole",
                "192.0.2.99",
                "table",
                "67",
                "proto",
                "67",
                "metric",
                "1024",
            ])?;
            lab.node.exec(&["ip", "rule", "del", "pref", "32768"])?;
            let run = verify_offline(lab, &state, &offline)?;
            assert_eq!(run.code, Some(1), "{run:?}");
            for (what, service, element) in [
                ("missing", "default/web", "10.96.0.80 dev "),
                ("foreign", "-", "blackhole 192.0.2.99"),
                ("missing", "-", "the rule to table 68"),
            ] {
                let is_listed = |line: &str| {
                    line.starts_with(what) && line.contains(service) && line.contains(element)
                };
                assert!(
                    run.out.lines().any(is_listed),
                    "{what} {element} is not in\n{}",
                    run.out
                );
            }
            Ok(())
        },
    )
}

#[test]
fn pending_changes_are_no_drift() -> Result<()> {
    isolated("verify::pending_changes_are_no_drift", |lab| {
        let etcd = Etcd::start(lab)?;
        let hosts = [lab.pod1.host, lab.pod2.host, lab.pod3.host];
        let services: Vec<Service> = ["a", "b", "c", "d"]
            .into_iter()
            .zip(90..)
            .map(|(name, number)| Service::new(name, number, &hosts))
            .collect();
        for service in &services {
            etcd.put(service)?;
        }
        let flags = vec!["--verify-interval=1s".to_owned()];
        let agent = Agent::start(
            lab,
            &AgentOptions {
                store: etcd.url(),
                flags,
            },
        )?;
        let start = Instant::now();
        let mut changes = 0;
        let mut verifications = 0;
        while verifications < 3 && start.elapsed() < EVENT_TIMEOUT {
            for (number, service) in services.iter().enumerate() {
                let mut service = service.clone();
                service.backends = hosts[..=(changes + number) % 3].to_vec();
                etcd.put(&service)?;
                changes += 1;
            }
            // Bursts: a reading counts only if the renderer has applied everything at its end.
            thread::sleep(BURST_PAUSE);
            let view = renderer(&agent, "nftables")?;
            assert_eq!(view["verification"]["drift"], 0, "{view:#}");
            verifications = view["verification"]["verifications"]
                .as_u64()
                .unwrap_or_default();
        }
        println!("{changes} changes, {verifications} verifications");
        assert!(verifications >= 3, "{:#}", renderer(&agent, "nftables")?);
        let run = verify_behind(lab, &[], &[])?;
        assert_eq!(run.code, Some(0), "{run:?}");
        let history = agent.http("GET", "/controller/event-history")?.body;
        assert!(!history.contains("\"drift\""), "{history}");
        agent.stop()?;
        Ok(())
    })
}

#[test]
fn unreachable_store_is_neither_drift_nor_success() -> Result<()> {
    isolated(
        "verify::unreachable_store_is_neither_drift_nor_success",
        |lab| {
            let nobody = verify_behind(lab, &[], &[])?;
            assert_eq!(nobody.code, Some(1), "{nobody:?}");
            assert!(
                nobody.err.contains("no agent at http://127.0.0.1:9999"),
                "{nobody:?}"
            );
            let state = Manifests::new(lab)?;
            let folder = state.folder();
            let unprivileged = ["setpriv", "--bounding-set", "-net_admin"];
            let run = verify_behind(lab, &unprivileged, &["-f", &folder])?;
            assert!(
                run.code == Some(1) && run.err.contains("CAP_NET_ADMIN"),
                "{run:?}"
            );
            let usage = verify_behind(
                lab,
                &[],
                &["-f", &folder, "--agent", "http://127.0.0.1:9999"],
            )?;
            assert_eq!(usage.code, Some(2), "{usage:?}");
            Ok(())
        },
    )
}
