//! The agent under a service manager that the test plays.

use std::{
    fs,
    io::{self, ErrorKind, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{
            fs::MetadataExt,
            net::{UnixDatagram, UnixStream},
        },
    },
    path::Path,
    process::Command,
    sync::mpsc,
    thread,
    time::Duration,
};

use contiv_store_testing::Etcd;
use tokio::runtime::Runtime;

use crate::{
    agent::{KillOnDrop, arguments, folder, get},
    contiv::command,
};

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The messages up to and including the first one that contains `expected`.
fn until(socket: &UnixDatagram, expected: &str) -> Vec<String> {
    let mut messages = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            // A child of another test has ended: a read with a time limit is not restarted automatically.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => panic!("{expected}: {error}: {messages:#?}"),
        };
        messages.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
        if messages.last().unwrap().contains(expected) {
            return messages;
        }
    }
}

/// Asserts that no message arrives for longer than the watchdog's interval.
fn assert_falls_silent(socket: &UnixDatagram) {
    socket
        .set_read_timeout(Some(Duration::from_millis(2500)))
        .unwrap();
    let mut buffer = [0; 4096];
    let is_time_out = |error: io::Error| error.kind() == ErrorKind::WouldBlock;
    let silent = (0..10).any(|_| socket.recv(&mut buffer).is_err_and(is_time_out));
    assert!(silent, "a notification was sent after the stop");
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
}

/// A listening service manager, and the agent it has started.
fn start(folder: &Path, store: Option<&str>) -> (UnixDatagram, KillOnDrop) {
    let path = folder.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut arguments = arguments(folder, "127.0.0.1:0");
    for argument in arguments
        .iter_mut()
        .filter(|argument| argument.starts_with("dir:"))
    {
        if let Some(store) = store {
            store.clone_into(argument);
        }
    }
    let mut command = command(&arguments);
    command.env("NOTIFY_SOCKET", &path);
    (socket, KillOnDrop(command.spawn().unwrap()))
}

#[test]
fn agent_with_unreadable_store_is_alive_but_not_ready() {
    let folder = folder();
    // Nothing listens at this address.
    let (socket, _agent) = start(folder.path(), Some("etcd://127.0.0.1:1"));
    let mut messages = until(&socket, "WATCHDOG=1");
    messages.extend(until(&socket, "STATUS=the store cannot be watched"));
    messages.extend(until(&socket, "WATCHDOG=1"));
    assert!(
        !messages.iter().any(|message| message.contains("READY=1")),
        "{messages:#?}"
    );
}

/// The pipe that the agent logs to.
struct Log {
    reader: Box<dyn Read>,
    theirs: OwnedFd,
}

impl Log {
    fn of(kind: &str) -> Self {
        if kind == "journal" {
            let (ours, theirs) = UnixStream::pair().unwrap();
            Self {
                reader: Box::new(ours),
                theirs: theirs.into(),
            }
        } else {
            let (ours, theirs) = io::pipe().unwrap();
            Self {
                reader: Box::new(ours),
                theirs: theirs.into(),
            }
        }
    }

    /// The value of `JOURNAL_STREAM`.
    fn stream(&self) -> String {
        let file = fs::File::from(self.theirs.try_clone().unwrap());
        let metadata = file.metadata().unwrap();
        format!("{}:{}", metadata.dev(), metadata.ino())
    }

    /// Reads up to the end of the line with this text. Nothing is read after that.
    fn read_line_with(&mut self, expected: &str) -> String {
        let (mut line, mut byte) = (String::new(), [0]);
        loop {
            self.reader.read_exact(&mut byte).unwrap();
            match byte[0] {
                b'\n' if line.contains(expected) => return line,
                b'\n' => line.clear(),
                byte => line.push(char::from(byte)),
            }
        }
    }

    /// Writes until the pipe is full.
    fn fill(&self) {
        let mut file = fs::File::from(self.theirs.try_clone().unwrap());
        let (sender, written) = mpsc::channel();
        // The writer blocks until the test is over.
        thread::spawn(move || while file.write_all(b"\n").is_ok() && sender.send(()).is_ok() {});
        while written.recv_timeout(Duration::from_millis(500)).is_ok() {}
    }
}

/// Sends until the socket is full.
fn fill(path: &Path) {
    let sender = UnixDatagram::unbound().unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.send_to(b"X=1\n", path).is_ok() {}
}

/// Neither the agent's messages to its service manager nor its log are read.
#[test]
fn agent_with_hanging_readers_works_and_obeys_sigterm() {
    for kind in ["journal", "pipe"] {
        let folder = folder();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        fill(&path);
        let mut log = Log::of(kind);
        let mut command = command(&arguments(folder.path(), "127.0.0.1:0"));
        command
            .env("NOTIFY_SOCKET", &path)
            .stderr(log.theirs.try_clone().unwrap());
        if kind == "journal" {
            command.env("JOURNAL_STREAM", log.stream());
        }
        let mut agent = KillOnDrop(command.spawn().unwrap());
        drop(command);
        let line = log.read_line_with("listen=");
        let (_, address) = line.split_once("listen=").unwrap();
        log.fill();
        // Each is a line of the log.
        for _ in 0..10 {
            agent.signal("HUP");
            assert!(
                get(address, "/liveness").contains(" 200 OK"),
                "{kind}: the node waits"
            );
        }
        // When messages are read again, they contain the state at that time.
        until(&socket, "READY=1");
        fill(&path);
        agent.signal("TERM");
        assert_eq!(agent.wait(), Some(0), "{kind}");
    }
}

#[test]
fn agent_start_failure_is_notified_with_the_reason() {
    let folder = folder();
    let (socket, mut agent) = start(folder.path(), Some("dir:/nowhere"));
    let messages = until(&socket, "STATUS=failed: ");
    assert!(
        messages.last().unwrap().contains("/nowhere"),
        "{messages:#?}"
    );
    assert_eq!(agent.0.wait().unwrap().code(), Some(1));
}

#[test]
fn systemd_is_notified_of_ready_watchdog_reload_and_stop() {
    let folder = folder();
    let (socket, agent) = start(folder.path(), None);
    let started = until(&socket, "READY=1");
    assert!(
        started
            .iter()
            .any(|message| message.contains("STATUS=ready")),
        "{started:#?}"
    );

    agent.signal("HUP");
    let reload = until(&socket, "RELOADING=1").pop().unwrap();
    assert!(reload.contains("MONOTONIC_USEC="), "{reload}");
    until(&socket, "READY=1");
    until(&socket, "WATCHDOG=1");

    // A stopped process does not feed the watchdog.
    agent.signal("STOP");
    assert_falls_silent(&socket);
    agent.signal("CONT");
    until(&socket, "WATCHDOG=1");

    agent.signal("TERM");
    until(&socket, "STOPPING=1");
}

/// One instance of the controllers.
fn start_controllers(folder: &Path, store: &str, identity: &str) -> (UnixDatagram, KillOnDrop) {
    let path = folder.join(format!("notify-{identity}"));
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let arguments = [
        "controller",
        "--enable",
        "external-workloads",
        "--store",
        store,
        "--identity",
        identity,
    ];
    let mut command = command(&arguments);
    command
        .args(["--listen", "127.0.0.1:0"])
        .env("NOTIFY_SOCKET", &path);
    (socket, KillOnDrop(command.spawn().unwrap()))
}

#[test]
fn systemd_is_notified_of_the_active_controller_instance() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::new().unwrap();
    let etcd = runtime.block_on(Etcd::start()).unwrap();
    let (socket, mut one) = start_controllers(folder.path(), &etcd.url(), "one");
    let started = until(&socket, "READY=1");
    assert!(
        started
            .iter()
            .any(|message| message.starts_with("STATUS=active")),
        "{started:#?}"
    );
    let (standby, _two) = start_controllers(folder.path(), &etcd.url(), "two");
    let started = until(&standby, "READY=1");
    assert!(
        started
            .iter()
            .any(|message| message.trim_end() == "STATUS=standing by; one is active"),
        "{started:#?}"
    );

    // Nothing is reloaded, and the signal must not end the process.
    one.signal("HUP");
    until(&socket, "WATCHDOG=1");

    one.signal("STOP");
    assert_falls_silent(&socket);
    one.signal("CONT");
    until(&socket, "WATCHDOG=1");

    one.signal("TERM");
    let stopping = until(&socket, "STOPPING=1");
    assert!(
        !stopping.iter().any(|message| message.contains("RELOADING")),
        "{stopping:#?}"
    );
    assert_eq!(one.0.wait().unwrap().code(), Some(0));
    // It has resigned the lease.
    until(&standby, "STATUS=active");
}

#[test]
fn controllers_without_store_are_alive_but_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    // Nothing listens at this address.
    let (socket, _one) = start_controllers(folder.path(), "etcd://127.0.0.1:1", "one");
    let mut messages = until(&socket, "WATCHDOG=1");
    messages.extend(until(&socket, "STATUS=the store cannot be watched"));
    messages.extend(until(&socket, "WATCHDOG=1"));
    assert!(
        !messages.iter().any(|message| message.contains("READY=1")),
        "{messages:#?}"
    );
}

#[test]
fn lines_for_journal_begin_with_their_priority() {
    let folder = folder();
    let log = folder.path().join("log");
    let file = fs::File::create(&log).unwrap();
    let metadata = file.metadata().unwrap();
    let stream = format!("{}:{}", metadata.dev(), metadata.ino());
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut command = command(&arguments(folder.path(), "127.0.0.1:0"));
    command
        .env("NOTIFY_SOCKET", &path)
        .env("JOURNAL_STREAM", stream)
        .stderr(file);
    let agent = KillOnDrop(command.spawn().unwrap());
    until(&socket, "READY=1");
    agent.signal("TERM");
    until(&socket, "STOPPING=1");
    let mut text = String::new();
    fs::File::open(&log)
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert!(
        text.lines().count() > 1 && text.lines().all(|line| line.starts_with("<6>")),
        "{text}"
    );
    assert!(
        !text.contains("Z  INFO"),
        "the journal knows the time: {text}"
    );
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().to_str().unwrap();
    let run = crate::contiv::run(&["man", pages]);
    assert_eq!(run.code, 0, "{}", run.err);
    for command in [
        "agent", "render", "apply", "get", "status", "services", "backends", "events", "top",
        "trace",
    ] {
        let page = fs::read_to_string(folder.path().join(format!("contiv-{command}.1"))).unwrap();
        assert!(page.contains(".TH"), "{page}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let run = crate::contiv::run(&["completions", shell]);
        assert!(
            run.code == 0 && run.out.contains("CONTIV_COMPLETE"),
            "{shell}: {}",
            run.out
        );
    }
    let mut command = command(&["--", "contiv", ""]);
    command
        .env("CONTIV_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", "1")
        .env("_CLAP_IFS", "\n");
    let completed = crate::contiv::finish(command).out;
    for command in [
        "agent",
        "get",
        "services",
        "backends",
        "events",
        "health-checks",
        "version",
    ] {
        assert!(
            completed.lines().any(|line| line == command),
            "{command} is not in:\n{completed}"
        );
    }
    let script = folder.path().join("contiv.bash");
    fs::write(&script, crate::contiv::run(&["completions", "bash"]).out).unwrap();
    assert!(
        Command::new("bash")
            .arg("-n")
            .arg(&script)
            .status()
            .unwrap()
            .success(),
        "it is no shell script"
    );
}
