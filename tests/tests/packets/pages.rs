//! The commands of docs/users/getting-started.md and, within it, of the broken services of docs/users/troubleshooting.md, one after the other as they
//! are printed. `/etc` and `/usr/share` are overlays, `sudo` and `systemctl` stand-ins; `packaging/package-test` follows the same pages in
//! a whole Debian, where the package is installed and these are real.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use contiv_tests::{
    agent::binary,
    lab::{LabError, Result, isolated},
};

/// How long a command is repeated until its result is the documented one.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const WORK: &str = "/run/page";

/// Makes a machine on which the package is installed. `$1` is the repository, `$2` the folder of the binary.
const SETUP: &str = r#"
set -e
W=/run/page
over() { mkdir -p "$W/upper$1" "$W/work$1"; mount -t overlay -o "userxattr,lowerdir=$1,upperdir=$W/upper$1,workdir=$W/work$1" overlay "$1"; }
over /etc
over /usr/share
mkdir -p /etc/contiv/manifests /usr/share/doc/contiv/examples $W/bin $W/home $W/state
cp "$1/README.md" /usr/share/doc/contiv/
cp "$1/examples/web.yaml" /usr/share/doc/contiv/examples/
cp "$1/systemd/agent.toml" /etc/contiv/
ln -s "$2/contiv" $W/bin/contiv
cat >$W/bin/sudo <<'END'
#!/bin/sh
exec "$@"
END
cat >$W/bin/systemctl <<'END'
#!/bin/sh
# The unit contiv-agent: started is ready, stopped is ended. A process that has ended and that nobody has waited for has no program.
process=/run/page/agent.pid
stop() {
    kill "$(cat $process)"
    while readlink "/proc/$(cat $process)/exe" >/dev/null 2>&1; do sleep 0.05; done
}
start() {
    CONTIV_STATE_DIR=/run/page/state contiv agent >>/run/page/log 2>&1 </dev/null &
    echo $! >$process
    until curl --silent --fail 127.0.0.1:9999/readiness >/dev/null; do sleep 0.05; done
}
[ "$2" = contiv-agent ] || exit 1
case "$1" in
    start) start ;;
    stop) stop ;;
    restart) stop; start ;;
    status) readlink "/proc/$(cat $process)/exe" ;;
    *) exit 1 ;;
esac
END
chmod +x $W/bin/sudo $W/bin/systemctl
# A network as that of any machine: it only has to have a default route.
ip link set lo up
ip link add test0 type veth peer name test1
ip link set test0 up
ip link set test1 up
ip address add 192.0.2.2/24 dev test0
ip route add default via 192.0.2.1
"#;

/// The pages in the order in which they are followed: the broken services come before the service is taken away.
fn text(root: &Path) -> Result<String> {
    let read = |name: &str| {
        fs::read_to_string(root.join("docs/users").join(name))
            .map_err(|error| LabError::system(name.to_owned(), error))
    };
    let (page, troubleshooting) = (read("getting-started.md")?, read("troubleshooting.md")?);
    let missing = |heading: &str| LabError::Unexpected(format!("no heading {heading}"));
    let (_, broken) = troubleshooting
        .split_once("\n## Four broken services\n")
        .ok_or_else(|| missing("Four broken services"))?;
    let broken = broken.split("\n## ").next().unwrap_or_default();
    let (page, end) = page
        .split_once("\n## 6. Uninstall\n")
        .ok_or_else(|| missing("6. Uninstall"))?;
    Ok([page, broken, end].join("\n"))
}

/// The lines of `sh` blocks, and those of `console` blocks with a prompt. A block after a comment `<!-- … -->` is for another way.
fn commands(text: &str) -> Vec<&str> {
    let (mut language, mut is_left_out, mut comes_left_out, mut found) =
        (None, false, false, Vec::new());
    for line in text.lines() {
        match language {
            _ if line.starts_with("```") => {
                language = if language.is_none() {
                    line.strip_prefix("```")
                } else {
                    None
                };
                (is_left_out, comes_left_out) = (comes_left_out, false);
            }
            None => comes_left_out |= line.starts_with("<!-- "),
            Some(_) if is_left_out || line.is_empty() => {}
            Some("sh") => found.push(line),
            Some("console") => found.extend(line.strip_prefix("$ ").or(line.strip_prefix("# "))),
            Some(_) => {}
        }
    }
    found
}

fn shell(command: &str, path: &str) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .current_dir(format!("{WORK}/home"))
        .stdin(Stdio::null());
    shell
        .env("PATH", path)
        .env("HOME", format!("{WORK}/home"))
        .env("COLUMNS", "100");
    shell
}

/// Runs a command until it ends with the documented exit code, 0 if there is none, and prints what its comment has between quotes.
fn follow(command: &str, path: &str) -> Result<()> {
    let failed = |error| LabError::system(command.to_owned(), error);
    let (plain, comment) = command.split_once("  # ").unwrap_or((command, ""));
    if plain.trim_end().ends_with('&') {
        shell(command, path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        return Ok(());
    }
    let expected = comment
        .split_once("exit code ")
        .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    let expected: i32 = expected.unwrap_or_default();
    let start = Instant::now();
    loop {
        let output = shell(command, path).output().map_err(failed)?;
        let printed = [
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        ]
        .concat();
        let says_all = comment
            .split('"')
            .skip(1)
            .step_by(2)
            .all(|words| printed.contains(words));
        if output.status.code() == Some(expected) && says_all {
            return Ok(());
        }
        // Only what asks may be repeated: the agent may not have seen the change before it yet.
        let asks = ["contiv ", "curl "]
            .iter()
            .any(|start| command.starts_with(start));
        if !asks || start.elapsed() > TIME_LIMIT {
            let log = fs::read_to_string(format!("{WORK}/log")).unwrap_or_default();
            let code = output.status;
            return Err(LabError::Unexpected(format!(
                "{command}\n{code}: {printed}\n{log}"
            )));
        }
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn pages_for_one_machine_work_as_printed() -> Result<()> {
    isolated("pages::pages_for_one_machine_work_as_printed", |_| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let binary = binary()?;
        let folder = binary.parent().unwrap_or(Path::new("/"));
        let setup = Command::new("sh")
            .args(["-c", SETUP, "sh"])
            .arg(&root)
            .arg(folder)
            .output();
        let setup = setup.map_err(|error| LabError::system("make a machine", error))?;
        if !setup.status.success() {
            return Err(LabError::Unexpected(
                String::from_utf8_lossy(&setup.stderr).into_owned(),
            ));
        }
        let path = format!("{WORK}/bin:{}", std::env::var("PATH").unwrap_or_default());
        // What the installation of the package does.
        follow("systemctl start contiv-agent", &path)?;
        let text = text(&root)?;
        let commands = commands(&text);
        // The package needs a machine of its own.
        let (apt, followed): (Vec<&str>, Vec<&str>) = commands
            .into_iter()
            .partition(|command| command.starts_with("sudo apt "));
        assert_eq!(
            (apt.len(), followed.len() > 50),
            (2, true),
            "{apt:?} {followed:?}"
        );
        for command in followed {
            follow(command, &path)?;
        }
        let tables = shell("nft list tables", &path).output();
        let tables = tables
            .map_err(|error| LabError::system("list tables", error))?
            .stdout;
        let tables = String::from_utf8_lossy(&tables).into_owned();
        assert!(!tables.contains("contiv"), "{tables}");
        Ok(())
    })
}
