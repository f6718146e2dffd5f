use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use contiv_store_testing::ReservedPort;

use crate::contiv::{Run, command, finish, run, text, web};

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A running agent on a folder of manifests, with the dry-run renderer.
pub(crate) struct Agent {
    process: KillOnDrop,
    log: BufReader<ChildStderr>,
    pub(crate) address: String,
    healthz: String,
}

impl Agent {
    /// Starts it and waits until it is ready.
    pub(crate) fn start(folder: &Path) -> Self {
        Self::start_waiting_for(&arguments(folder, "127.0.0.1:0"), "ready: ")
    }

    /// Starts one that watches this store and keeps its state in this folder, and waits until it is ready.
    pub(crate) fn watching(store: &str, state: &Path) -> Self {
        Self::start_waiting_for(&arguments_for(store, state, "127.0.0.1:0"), "ready: ")
    }

    /// Starts it and waits until it logs this.
    pub(crate) fn start_waiting_for(arguments: &[impl AsRef<OsStr>], logged: &str) -> Self {
        Self::start_command(command(arguments), logged)
    }

    fn start_command(mut command: Command, logged: &str) -> Self {
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(process.stderr.take().unwrap());
        let mut agent = Self {
            process: KillOnDrop(process),
            log,
            address: String::new(),
            healthz: String::new(),
        };
        let (mut line, mut printed) = (String::new(), String::new());
        while !line.contains(logged) {
            line.clear();
            assert_ne!(
                agent.log.read_line(&mut line).unwrap(),
                0,
                "the agent ended:\n{printed}"
            );
            printed += &line;
            if let Some((_, address)) = line.split_once("listen=") {
                address.trim().clone_into(&mut agent.address);
            }
            if let Some((_, address)) = line.split_once("health for load balancers address=") {
                address.trim().clone_into(&mut agent.healthz);
            }
        }
        agent
    }

    pub(crate) fn get(&self, path: &str) -> String {
        get(&self.address, path)
            .split_once("\r\n\r\n")
            .unwrap()
            .1
            .to_owned()
    }

    /// Polls until the answer is as expected.
    pub(crate) fn wait_for(&self, path: &str, is_wanted: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let answer = self.get(path);
            if is_wanted(&answer) {
                return answer;
            }
            assert!(start.elapsed() < TEST_TIMEOUT, "in vain: {answer}");
        }
    }

    pub(crate) fn signal(&self, signal: &str) {
        self.process.signal(signal);
    }

    /// Tells it to stop, and returns its exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        self.signal("TERM");
        self.process.wait()
    }
}

/// A process that is killed at the end of the test.
pub(crate) struct KillOnDrop(pub(crate) Child);

impl KillOnDrop {
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.0.id().to_string();
        assert!(
            Command::new("kill")
                .args([&format!("-{signal}"), &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Its exit code, once it has ended.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(start.elapsed() < TEST_TIMEOUT, "it does not end");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Head and body of the answer.
pub(crate) fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

pub(crate) fn arguments(folder: &Path, listen: &str) -> Vec<String> {
    let store = format!("dir:{}", text(&folder.join("manifests")));
    arguments_for(&store, &folder.join("state"), listen)
}

fn arguments_for(store: &str, state: &Path, listen: &str) -> Vec<String> {
    [
        "agent",
        "--renderers",
        "dry-run",
        "--node-name",
        "n1",
        "--listen",
        listen,
        "--store",
        store,
        "--state-dir",
        text(state),
        "--healthz-listen",
        "127.0.0.1:0",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn run_owned(arguments: &[String]) -> Run {
    finish(command(arguments))
}

pub(crate) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("manifests")).unwrap();
    fs::write(folder.path().join("manifests/web.yaml"), web("web", 7)).unwrap();
    folder
}

/// A service that selects an external workload with this address.
fn billing(ip: &str) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: billing, namespace: shop}}
spec: {{clusterIP: 10.96.0.50, selector: {{app: billing}}, ports: [{{port: 80, targetPort: 8080}}]}}
---
apiVersion: workload.linkerd.io/v1beta1
kind: ExternalWorkload
metadata: {{name: vm-1, namespace: shop, labels: {{app: billing}}}}
spec:
  meshTLS: {{identity: vm-1, serverName: vm-1.example}}
  workloadIPs: [{{ip: {ip}}}]
  ports: [{{port: 8080}}]
status: {{conditions: [{{type: Ready, status: 'True'}}]}}
"
    )
}

#[test]
fn external_workload_of_folder_is_a_backend() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    // The first workload comes while the agent runs.
    let path = folder.path().join("manifests/billing.yaml");
    fs::write(&path, billing("192.0.2.7")).unwrap();
    agent.wait_for("/renderers/dry-run/dump", |dump| {
        dump.contains("192.0.2.7 . 8080")
    });
    fs::write(&path, billing("192.0.2.8")).unwrap();
    agent.wait_for("/renderers/dry-run/dump", |dump| {
        dump.contains("192.0.2.8 . 8080") && !dump.contains("192.0.2.7")
    });
    // A start with workloads, and then without.
    drop(agent);
    let agent = Agent::start(folder.path());
    assert!(
        agent
            .get("/renderers/dry-run/dump")
            .contains("192.0.2.8 . 8080")
    );
    fs::remove_file(&path).unwrap();
    agent.wait_for("/renderers/dry-run/dump", |dump| {
        !dump.contains("192.0.2.8")
    });
}

#[test]
fn changed_manifest_is_rendered_unless_it_is_broken() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let file = folder.path().join("manifests/web.yaml");
    assert!(
        agent
            .get("/renderers/dry-run/dump")
            .contains("10.1.0.7 . 8080")
    );
    fs::write(&file, web("web", 7).replace("10.1.0.7", "10.1.0.9")).unwrap();
    agent.wait_for("/renderers/dry-run/dump", |dump| {
        dump.contains("10.1.0.9 . 8080")
    });
    fs::write(
        &file,
        web("web", 7).replace("clusterIP: 10.96.0.7", "clusterIP: 10.96.0.777"),
    )
    .unwrap();
    let quarantine = agent.wait_for("/quarantine", |quarantine| quarantine != "[]");
    for part in ["Service shop/web", "spec.clusterIP", "last good"] {
        assert!(quarantine.contains(part), "{part} is not in: {quarantine}");
    }
    assert!(agent.get("/services/shop/web").contains("10.96.0.7\""));
}

#[test]
fn half_open_connections_do_not_exhaust_file_descriptors() {
    let folder = folder();
    let agent = command(&arguments(folder.path(), "127.0.0.1:0"));
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""])
        .arg(agent.get_program())
        .args(agent.get_args());
    let agent = Agent::start_command(limited, "ready: ");
    let half_open: Vec<_> = [&agent.address, &agent.healthz]
        .iter()
        .flat_map(|address| (0..80).map(move |_| TcpStream::connect(address).unwrap()))
        .map(|mut stream| {
            // A connection that was already closed cannot be written to.
            let _ = stream.write_all(b"GET / HTTP/1.1\r\n");
            stream
        })
        .collect();
    for round in 1..=3 {
        let file = folder.path().join(format!("manifests/new-{round}.yaml"));
        fs::write(file, web(&format!("new-{round}"), 10 + round)).unwrap();
        let name = format!("new-{round}");
        agent.wait_for("/services", |services| services.contains(&name));
    }
    drop(half_open);
}

#[test]
fn load_balancers_ask_on_address_of_their_own() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    for path in ["/healthz", "/livez"] {
        let answer = get(&agent.healthz, path);
        assert!(
            answer.starts_with("HTTP/1.0 200") && answer.contains("\"healthy\":true"),
            "{path}: {answer}"
        );
    }
    assert!(get(&agent.healthz, "/quarantine").starts_with("HTTP/1.0 404"));
}

#[test]
fn healthz_address_in_use_is_taken_over_when_it_is_free() {
    let folder = folder();
    // Reserved, so that nothing else takes it over.
    let port = ReservedPort::new().unwrap();
    let other = TcpListener::bind(port.address()).unwrap();
    let address = port.address().to_string();
    let mut arguments = arguments(folder.path(), "127.0.0.1:0");
    let position = arguments
        .iter()
        .position(|argument| argument == "--healthz-listen")
        .unwrap();
    arguments[position + 1].clone_from(&address);
    let agent = Agent::start_waiting_for(&arguments, "ready: ");
    drop(other);
    let start = Instant::now();
    while TcpStream::connect(&address).is_err() {
        assert!(
            start.elapsed() < TEST_TIMEOUT,
            "nobody listens on {address}"
        );
        thread::sleep(Duration::from_millis(20));
    }
    assert!(get(&address, "/healthz").starts_with("HTTP/1.0 200"));
    drop(agent);
}

#[test]
fn sigterm_ends_the_agent_and_sighup_is_resync() {
    let folder = folder();
    let mut agent = Agent::start(folder.path());
    agent.signal("HUP");
    agent.wait_for("/controller/event-history", |history| {
        history.contains("\"SIGHUP\"")
    });
    let start = Instant::now();
    agent.signal("TERM");
    let status = agent.process.0.wait().unwrap();
    assert_eq!(status.code(), Some(0));
    // systemd kills it after 90 s.
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "{:?}",
        start.elapsed()
    );
    let mut log = String::new();
    agent.log.read_to_string(&mut log).unwrap();
    assert!(log.contains("the dataplane stays in place"), "{log}");
}

#[test]
fn second_agent_and_cleanup_are_refused_while_one_runs() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let pid = format!("pid {}", agent.process.0.id());
    let second = run_owned(&arguments(folder.path(), "127.0.0.1:0"));
    assert!(
        second.code == 1 && second.err.contains(&pid) && second.err.contains("--state-dir"),
        "{second:?}"
    );
    let state = folder.path().join("state");
    let cleanup = run(&[
        "cleanup",
        "--renderers",
        "dry-run",
        "--state-dir",
        text(&state),
    ]);
    assert!(
        cleanup.code == 1 && cleanup.err.contains(&pid),
        "{cleanup:?}"
    );
    drop(agent);
    let cleanup = run(&[
        "cleanup",
        "--renderers",
        "dry-run",
        "--state-dir",
        text(&state),
    ]);
    assert_eq!(
        (cleanup.code, cleanup.out.as_str()),
        (0, "dry-run: nothing to remove\n")
    );
}

#[test]
fn start_failure_is_named_with_a_hint() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let taken = agent.address.clone();
    let with = |flag: &str, value: &str| -> Run {
        let other = tempfile::tempdir().unwrap();
        fs::create_dir(other.path().join("manifests")).unwrap();
        let mut arguments = arguments(other.path(), "127.0.0.1:0");
        let position = arguments
            .iter()
            .position(|argument| *argument == flag)
            .unwrap();
        value.clone_into(&mut arguments[position + 1]);
        run_owned(&arguments)
    };
    for (flag, value, expected) in [
        (
            "--listen",
            taken.as_str(),
            &["--listen", taken.as_str(), "in use"][..],
        ),
        ("--store", "dir:/nowhere", &["--store", "/nowhere"]),
        (
            "--state-dir",
            "/proc/nowhere",
            &["--state-dir", "/proc/nowhere"],
        ),
    ] {
        let run = with(flag, value);
        assert_eq!(run.code, 1, "{run:?}");
        for part in expected {
            assert!(run.err.contains(part), "{part} is not in: {}", run.err);
        }
    }
}
