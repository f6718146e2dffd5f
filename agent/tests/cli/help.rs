//! Help and version output of the commands.

use crate::contiv::{command, finish, run};

/// The names of all commands, as the help lists them.
fn commands() -> Vec<String> {
    let help = run(&["--help"]).out;
    let lines = help
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1);
    let names = lines
        .take_while(|line| !line.is_empty())
        .filter(|line| !line.starts_with("   "));
    names
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn help_fits_terminal_of_80_columns() {
    let commands = commands();
    assert!(commands.len() > 15, "{commands:?}");
    for name in &commands {
        for help in ["--help", "-h"] {
            // `script` runs it on its own terminal.
            let line = format!(
                "stty rows 24 cols 80 && {} {name} {help}",
                env!("CARGO_BIN_EXE_contiv")
            );
            let mut script = std::process::Command::new("script");
            let output = script
                .args(["-qec", &line, "/dev/null"])
                .env("TERM", "xterm")
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let text = console::strip_ansi_codes(&text);
            assert!(text.contains("Usage:"), "{name}: {text}");
            let is_too_long =
                |line: &&str| line.trim_end().chars().count() > 80 && line.trim().contains(' ');
            assert_eq!(text.lines().find(is_too_long), None, "{name} {help}");
        }
    }
}

#[test]
fn version_names_commit() {
    let text = run(&["version"]);
    assert_eq!((text.code, text.err.as_str()), (0, ""));
    let expected = format!("contiv {} (commit ", env!("CARGO_PKG_VERSION"));
    assert!(text.out.starts_with(&expected), "{}", text.out);
    let json: serde_json::Value =
        serde_json::from_str(&run(&["version", "-o", "json"]).out).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    // A build without git metadata, as from a tarball, has no commit.
    let commit = json["commit"].as_str().unwrap_or("unknown");
    assert!(text.out.contains(commit), "{}", text.out);
    let mut git = std::process::Command::new("git");
    let head = git
        .args(["rev-parse", "--short=12", "HEAD"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    if let Some(head) = head.ok().filter(|head| head.status.success()) {
        assert_eq!(String::from_utf8(head.stdout).unwrap().trim(), commit);
    }
}

/// jemalloc prints its settings at the end of the process.
#[test]
fn allocator_has_its_settings() {
    let mut command = command(&["version"]);
    command.env("_RJEM_MALLOC_CONF", "stats_print:true");
    let printed = finish(command).err;
    for setting in [
        "narenas: 1\n",
        "dirty_decay_ms: 1000 ",
        "muzzy_decay_ms: 0 ",
        "lg_extent_max_active_fit: 20\n",
    ] {
        assert!(
            printed.contains(&format!("opt.{setting}")),
            "{setting:?}: {printed}"
        );
    }
}

#[test]
fn completions_of_each_shell_call_the_binary() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = run(&["completions", shell]);
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{shell}");
        assert!(
            run.out.contains("CONTIV_COMPLETE") && run.out.contains("contiv"),
            "{shell}: {}",
            run.out
        );
    }
}

#[test]
fn missing_folder_is_named_once() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path().to_str().unwrap();
    for arguments in [
        &["get", "svc", "--store", "dir:/nowhere"][..],
        &[
            "agent",
            "--renderers",
            "dry-run",
            "--store",
            "dir:/nowhere",
            "--state-dir",
            state,
            "--listen",
            "127.0.0.1:0",
        ],
        &["render", "-f", "/nowhere"],
    ] {
        let run = finish(command(arguments));
        assert_eq!((run.code, run.out.as_str()), (1, ""), "{arguments:?}");
        assert_eq!(
            run.err.matches("No such file").count(),
            1,
            "{arguments:?}: {}",
            run.err
        );
        assert!(run.err.contains("/nowhere"), "{}", run.err);
    }
}
