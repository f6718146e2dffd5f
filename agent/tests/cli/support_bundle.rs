use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Read,
    path::Path,
};

use flate2::read::GzDecoder;

use crate::{
    agent::Agent,
    contiv::{command, finish, text, web},
};

const PASSWORD: &str = "correct-horse-battery";

/// The parts of an archive by name.
fn parts(path: &Path) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(GzDecoder::new(File::open(path).unwrap()));
    let part = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut content = String::new();
        entry.read_to_string(&mut content).unwrap();
        (
            name.strip_prefix("contiv-support/").unwrap().to_owned(),
            content,
        )
    };
    archive.entries().unwrap().map(part).collect()
}

#[test]
fn bundle_holds_the_answers_of_agent_and_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let manifests = folder.path().join("manifests");
    fs::create_dir(&manifests).unwrap();
    fs::write(manifests.join("web.yaml"), web("web", 1)).unwrap();
    fs::write(
        manifests.join("bad.yaml"),
        "kind: Service\napiVersion: v1\n",
    )
    .unwrap();
    let agent = Agent::start(folder.path());
    let path = folder.path().join("bundle.tar.gz");
    let server = format!("http://{}", agent.address);
    let run = finish(command(&[
        "support-bundle",
        "--agent",
        &server,
        "-O",
        text(&path),
    ]));
    assert_eq!((run.code, run.out.trim()), (0, text(&path)), "{run:?}");
    let parts = parts(&path);
    for (name, expected) in [
        ("version.txt", "contiv "),
        ("agent/config.toml", "renderers = [\"dry-run\"]"),
        ("agent/status.json", "\"ready\":true"),
        ("agent/services.json", "shop/web"),
        ("agent/renderers.json", "\"applied_revision\""),
        ("agent/dump-dry-run.txt", "10.96.0.1 . tcp . 80"),
        ("agent/event-history.json", "\"seq_num\":1"),
        ("agent/quarantine.json", "bad.yaml"),
        ("agent/metrics.txt", "contiv_"),
        ("kernel/settings.txt", "net.ipv4.ip_forward = "),
        (
            "kernel/routes.txt",
            "# ip -4 -details route show table all\n",
        ),
    ] {
        let part = parts
            .get(name)
            .unwrap_or_else(|| panic!("no {name} in {:?}", parts.keys()));
        assert!(part.contains(expected), "{name}: {part}");
    }
    assert!(
        parts["kernel/routes.txt"].contains("local 127.0.0.1 "),
        "{}",
        parts["kernel/routes.txt"]
    );
    // Without systemd there is no journal, which is reported.
    assert!(
        parts.contains_key("journal/contiv-agent.txt")
            || parts["missing.txt"].contains("journalctl")
    );
    // The kernel's table is included, or the reason why it could not be read.
    assert!(
        parts.contains_key("kernel/table.txt")
            || parts["missing.txt"].contains("kernel/table.txt: ")
    );
    let again = finish(command(&["support-bundle", "-O", text(&path)]));
    assert!(
        again.code == 1 && again.err.contains("choose another file with -O"),
        "{again:?}"
    );
}

#[test]
fn bundle_without_agent_lists_missing_parts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bundle.tar.gz");
    // Nothing listens at port 1.
    let run = finish(command(&[
        "support-bundle",
        "--agent",
        "http://127.0.0.1:1",
        "-O",
        text(&path),
    ]));
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.err.contains("could not be collected"), "{run:?}");
    let parts = parts(&path);
    for part in [
        "agent/status.json",
        "agent/dump-RENDERER.txt",
        "kernel/verify.json",
    ] {
        let reason = parts["missing.txt"]
            .lines()
            .find(|line| line.starts_with(part));
        assert!(
            reason.is_some_and(|it| it.contains("no agent at http://127.0.0.1:1")),
            "{part}: {reason:?}"
        );
    }
    assert!(
        parts.contains_key("version.txt") && parts.contains_key("config.toml"),
        "{:?}",
        parts.keys()
    );
}

#[test]
fn no_password_gets_into_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let password_file = folder.path().join("password");
    fs::write(&password_file, PASSWORD).unwrap();
    let state = folder.path().join("state");
    let config = folder.path().join("agent.toml");
    let toml = format!(
        "store = \"etcd://127.0.0.1:1\"\nrenderers = [\"dry-run\"]\nlisten = \"127.0.0.1:0\"\nstate-dir = \"{}\"\n\
         etcd-user = \"contiv\"\netcd-password-file = \"{}\"\nlog-level = \"trace\"\n",
        text(&state),
        text(&password_file)
    );
    fs::write(&config, toml).unwrap();
    let agent = Agent::start_waiting_for(&["agent", "--config", text(&config)], "lost the store");
    let path = folder.path().join("bundle.tar.gz");
    let server = format!("http://{}", agent.address);
    let run = finish(command(&[
        "support-bundle",
        "--agent",
        &server,
        "-O",
        text(&path),
    ]));
    assert_eq!(run.code, 0, "{run:?}");
    let parts = parts(&path);
    assert!(
        parts["agent/config.toml"].contains("etcd-password-file"),
        "{parts:?}"
    );
    for (name, part) in &parts {
        assert!(!part.contains(PASSWORD), "{name}");
    }
}

#[test]
fn bundle_lists_missing_output_of_system_commands() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bundle.tar.gz");
    let mut without_programs = command(&[
        "support-bundle",
        "--agent",
        "http://127.0.0.1:1",
        "-O",
        text(&path),
    ]);
    without_programs.env("PATH", folder.path());
    let run = finish(without_programs);
    assert_eq!(run.code, 0, "{run:?}");
    let parts = parts(&path);
    for part in [
        "kernel/routes.txt: ip -4 -details rule show: ",
        "journal/contiv-agent.txt: journalctl ",
    ] {
        let reason = parts["missing.txt"]
            .lines()
            .find(|line| line.starts_with(part));
        assert!(
            reason.is_some_and(|it| it.contains("is it installed?")),
            "{}",
            parts["missing.txt"]
        );
    }
}
