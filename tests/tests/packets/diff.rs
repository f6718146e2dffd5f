//! `contiv diff` on a node: the kernel's table, another configuration and manifests, with connections that there are.

use std::{
    fs,
    process::{Command, Output},
};

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Frontend, Manifests, Service, ServiceManifest, State, TARGET_PORT},
    lab::{Family, Lab, LabError, Protocol, Responder, Result, isolated},
};
use serde_json::Value;
use tempfile::TempDir;

/// The output of `contiv diff`, and its exit code.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

impl Run {
    fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.out)
            .map_err(|error| LabError::Unexpected(format!("{error}: {self:?}")))
    }
}

/// Runs `contiv diff` on the node.
pub(super) fn diff(lab: &Lab, arguments: &[&str]) -> Result<Run> {
    let binary = binary()?;
    let output = lab.node.run(|| {
        let output = Command::new(&binary).arg("diff").args(arguments).output();
        output.map_err(|error| LabError::Unexpected(format!("{}: {error}", binary.display())))
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

/// Writes a file, and returns its path.
pub(super) fn write(folder: &TempDir, name: &str, text: &str) -> Result<String> {
    let path = folder.path().join(name);
    fs::write(&path, text).map_err(|error| LabError::Unexpected(error.to_string()))?;
    Ok(path.to_string_lossy().into_owned())
}

/// A service, one with all features that have their own sets, one that chooses by client, and one without backends.
fn services(lab: &Lab) -> Result<(Manifests, Service)> {
    let state = Manifests::new(lab)?;
    let two = [lab.pod1.host, lab.pod3.host];
    let web = Service::new("web", 80, &two);
    state.put(&web)?;
    state.put_manifest(&ServiceManifest {
        affinity: Some(600),
        source_ranges: vec!["203.0.113.0/24".to_owned(), "2001:db8:7::/48".to_owned()],
        external_local: true,
        ..ServiceManifest::new(Service::new("db", 81, &[lab.pod3.host]))
    })?;
    state.put_manifest(&ServiceManifest {
        affinity: Some(77),
        external_local: true,
        ..ServiceManifest::new(Service::new("sticky", 82, &two))
    })?;
    state.put(&Service::new("empty", 83, &[]))?;
    state.put_manifest(&ServiceManifest {
        annotations: vec![("contiv.io/balance", "client-address")],
        ..ServiceManifest::new(Service::new("hash", 84, &two))
    })?;
    Ok((state, web))
}

#[test]
fn kernel_configuration_and_manifests_are_compared_with_live_connections() -> Result<()> {
    isolated(
        "diff::kernel_configuration_and_manifests_are_compared_with_live_connections",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let (state, web) = services(lab)?;
            let agent = Agent::start(lab, &AgentOptions::with_open_table(state.url()))?;
            let equal = diff(lab, &[])?;
            assert_eq!(equal.code, Some(0), "{equal:#?}");
            assert!(
                equal
                    .out
                    .starts_with("nothing would change for connections\n")
                    && equal.out.contains("a table of this version"),
                "{equal:#?}"
            );

            let to = web.address(lab, Frontend::ClusterIp, Family::V4);
            let mut session = lab.pod2.open(Protocol::Tcp, to)?;
            let partner = session.ask()?;
            let files = TempDir::new().map_err(|error| LabError::Unexpected(error.to_string()))?;
            let now = agent.http("GET", "/config")?.body;
            let new = now.replace("masquerade-all = false", "masquerade-all = true");
            let config = write(&files, "new.toml", &new)?;
            let configured = diff(lab, &["--config", &config, "-o", "json"])?;
            assert_eq!(configured.code, Some(1), "{configured:#?}");
            let all = configured.json()?;
            assert_eq!(all["settings"][0]["setting"], "masquerade-all", "{all:#}");
            let of_web = |all: &Value, field: &str| {
                let counts = all["connections"].as_array().into_iter().flatten();
                let of_web = counts.filter(|count| count["service"] == "default/web");
                of_web
                    .filter_map(|count| count[field].as_u64())
                    .sum::<u64>()
            };
            let counts = ["go_on", "other_source", "deleted"].map(|field| of_web(&all, field));
            assert_eq!(counts, [1, 1, 0], "{all:#}");

            let others = [lab.pod1.host, lab.pod3.host];
            let others = others.into_iter().filter(|pod| pod.name != partner.by);
            let without = Service::new("web", 80, &others.collect::<Vec<_>>());
            let file = write(&files, "web.yaml", &ServiceManifest::new(without).text())?;
            let applied = diff(lab, &["-f", &file, "-o", "json"])?;
            let all = applied.json()?;
            assert_eq!(applied.code, Some(1), "{applied:#?}");
            assert_eq!(of_web(&all, "drained"), 1, "{all:#}");
            let table = diff(lab, &["-f", &file])?;
            assert!(table.out.contains("DRAINED"), "{table:#?}");

            // The agent would repair it.
            let old = write(&files, "old.toml", &now)?;
            agent.stop()?;
            let offline = diff(lab, &["--from-config", &old])?;
            assert_eq!(offline.code, Some(0), "{offline:#?}");
            let weights = "local-endpoint-weight = ";
            let other = now.replace(&format!("{weights}1\n"), &format!("{weights}200\n"));
            let other = write(&files, "weights.toml", &other)?;
            let other = diff(lab, &["--from-config", &other])?;
            assert_eq!(other.code, Some(1), "{other:#?}");
            assert!(other.out.contains("other shares"), "{other:#?}");
            state.delete(&web)?;
            let gone = diff(lab, &["--from-config", &old, "-o", "json"])?;
            let all = gone.json()?;
            let unnamed = all["connections"].as_array().into_iter().flatten();
            let unnamed = unnamed.filter(|count| count["service"].is_null());
            let drained = unnamed.map(|count| count["drained"].as_u64());
            assert_eq!(drained.collect::<Vec<_>>(), [Some(1)], "{all:#}");
            state.put(&web)?;
            let text = to.ip().to_string();
            let element = format!("{{ {text} . tcp . {} }}", to.port());
            lab.node.exec(&[
                "nft",
                "delete",
                "element",
                "inet",
                "contiv",
                "services4",
                &element,
            ])?;
            let damaged = diff(lab, &["--from-config", &old])?;
            assert_eq!(damaged.code, Some(1), "{damaged:#?}");
            let row = damaged.out.lines().find(|line| line.contains("/web "));
            assert!(
                row.is_some_and(|row| row.contains(&format!("{to}/"))),
                "{damaged:#?}"
            );
            lab.node
                .exec(&["nft", "delete", "table", "inet", "contiv"])?;
            let none = diff(lab, &["--from-config", &old])?;
            assert_eq!(none.code, Some(2), "{none:#?}");
            assert!(none.err.contains("no table inet contiv"), "{none:#?}");
            Ok(())
        },
    )
}
