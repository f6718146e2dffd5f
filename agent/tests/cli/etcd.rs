use std::{
    fs,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use contiv_store_testing::{Authority, Etcd, EtcdOptions};
use tokio::runtime::Runtime;

use crate::contiv::{Run, command, finish, run_with_input, text, web};

const TEST_TIMEOUT: Duration = Duration::from_secs(30);
const PASSWORD: &str = "tell-nobody-4711";

/// An etcd that requires a certificate, a user and a password, with files for all of them.
struct SecuredEtcd {
    runtime: Runtime,
    etcd: Etcd,
    authority: Authority,
    folder: tempfile::TempDir,
}

impl SecuredEtcd {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let authority = Authority::new().unwrap();
        let options = EtcdOptions {
            authority: Some(&authority),
            flags: &["--bcrypt-cost=4"],
        };
        let etcd = runtime.block_on(Etcd::start_with(options)).unwrap();
        let guarded = Self {
            runtime,
            etcd,
            authority,
            folder: tempfile::tempdir().unwrap(),
        };
        guarded.ctl(&["user", "add", &format!("root:{PASSWORD}")]);
        guarded.ctl(&["role", "add", "root"]);
        guarded.ctl(&["user", "grant-role", "root", "root"]);
        guarded.ctl(&["auth", "enable"]);
        guarded.write_password(PASSWORD);
        fs::write(guarded.folder.path().join("web.yaml"), web("web", 7)).unwrap();
        guarded
    }

    fn ctl(&self, arguments: &[&str]) {
        self.runtime.block_on(self.etcd.ctl(arguments)).unwrap();
    }

    fn write_password(&self, password: &str) {
        fs::write(self.folder.path().join("password"), format!("{password}\n")).unwrap();
    }

    /// A command with the credentials in its environment.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command
            .env("CONTIV_STORE", self.etcd.url())
            .env("CONTIV_ETCD_CA_FILE", self.authority.file("ca.pem"))
            .env("CONTIV_ETCD_CERT_FILE", self.authority.file("client.pem"))
            .env(
                "CONTIV_ETCD_KEY_FILE",
                self.authority.file("client-key.pem"),
            )
            .env("CONTIV_ETCD_USER", "root")
            .env(
                "CONTIV_ETCD_PASSWORD_FILE",
                self.folder.path().join("password"),
            );
        command
    }

    fn run(&self, arguments: &[&str]) -> Run {
        finish(self.command(arguments))
    }

    fn manifests(&self) -> String {
        text(&self.folder.path().join("web.yaml")).to_owned()
    }
}

#[test]
fn commands_get_into_etcd_with_certificates_and_users() {
    let guarded = SecuredEtcd::start();
    let apply = guarded.run(&["apply", "-f", &guarded.manifests()]);
    assert_eq!(
        (apply.code, apply.out.as_str()),
        (0, "service/web created\nendpointslice/web-1 created\n")
    );
    let get = guarded.run(&["get", "svc", "-n", "shop"]);
    assert!(get.code == 0 && get.out.contains("web"), "{get:?}");
    let delete = guarded.run(&["delete", "svc", "web", "-n", "shop"]);
    assert_eq!(
        (delete.code, delete.out.as_str()),
        (0, "service/web deleted\n")
    );

    guarded.write_password("a-wrong-one");
    let refused = guarded.run(&["get", "svc"]);
    assert_eq!(refused.code, 1);
    let file = guarded.folder.path().join("password");
    for part in ["user \"root\"", text(&file), "invalid user ID or password"] {
        assert!(
            refused.err.contains(part),
            "{part} is not in: {}",
            refused.err
        );
    }
    assert!(!refused.err.contains("a-wrong-one"), "{}", refused.err);
    let senseless = guarded.run(&["get", "svc", "--store", "etcd://a:1", "--etcd-user="]);
    assert_eq!(senseless.code, 2);
    for part in [
        "etcd-ca-file: the store etcd://a:1",
        "etcd-password-file: it is of no use without etcd-user",
    ] {
        assert!(
            senseless.err.contains(part),
            "{part} is not in: {}",
            senseless.err
        );
    }
}

#[test]
fn apply_splits_objects_too_large_for_one_request() {
    let runtime = Runtime::new().unwrap();
    let etcd = runtime.block_on(Etcd::start()).unwrap();
    let slice = |number: usize| {
        let endpoint = |last| {
            let pod = format!("web-7c9d8f6b5-{last:0200}");
            format!(
                "- addresses: [10.1.{number}.{last}]\n  targetRef: {{kind: Pod, namespace: shop, name: {pod}}}\n"
            )
        };
        let endpoints: String = (0..100).map(endpoint).collect();
        format!(
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{name: web-{number}, namespace: shop, labels: {{kubernetes.io/service-name: web}}}}\n\
             addressType: IPv4\nports: [{{name: http, port: 8080}}]\nendpoints:\n{endpoints}"
        )
    };
    let manifests: String = (0..100).map(slice).collect();
    assert!(manifests.len() > 2 << 20);
    let apply = || run_with_input(&["apply", "--store", &etcd.url(), "-f", "-"], &manifests);
    let applied = apply();
    assert_eq!((applied.code, applied.err.as_str()), (0, ""));
    assert_eq!(applied.out.matches(" created\n").count(), 100);
    assert_eq!(apply().out.matches(" unchanged\n").count(), 100);
}

#[test]
fn agent_survives_a_wrong_password_and_never_prints_it() {
    let mut guarded = SecuredEtcd::start();
    assert_eq!(guarded.run(&["apply", "-f", &guarded.manifests()]).code, 0);
    let state = format!("--state-dir={}", text(&guarded.folder.path().join("state")));
    let arguments = [
        "agent",
        "--renderers=dry-run",
        "--node-name=n1",
        "--listen=127.0.0.1:0",
        &state,
    ];
    let config = guarded.run(&[&arguments[..], &["--check-config"]].concat());
    assert!(
        config.code == 0 && config.out.contains("etcd-user = \"root\""),
        "{config:?}"
    );

    let log = guarded.folder.path().join("log");
    let mut agent = Agent(
        guarded
            .command(&[&arguments[..], &["--log-level=trace"]].concat())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap(),
    );
    let mut wait_for_log = |words: &str| {
        let start = Instant::now();
        while !fs::read_to_string(&log).unwrap().contains(words) {
            assert!(agent.0.try_wait().unwrap().is_none(), "the agent ended");
            assert!(start.elapsed() < TEST_TIMEOUT, "{words} is not in the log");
            thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for_log("ready: ");
    guarded.write_password("a-wrong-one");
    guarded.runtime.block_on(guarded.etcd.kill()).unwrap();
    guarded
        .runtime
        .block_on(guarded.etcd.start_again())
        .unwrap();
    wait_for_log("invalid user ID or password");
    guarded.write_password(PASSWORD);
    wait_for_log("the store is watched again");

    let id = agent.0.id();
    for file in ["cmdline", "environ"] {
        let content = fs::read(format!("/proc/{id}/{file}")).unwrap();
        assert!(
            !String::from_utf8_lossy(&content).contains(PASSWORD),
            "{file}"
        );
    }
    let log = fs::read_to_string(&log).unwrap();
    assert!(log.contains("TRACE"), "nothing was traced");
    for secret in [PASSWORD, "a-wrong-one"] {
        assert!(
            !log.contains(secret) && !config.out.contains(secret),
            "{secret}"
        );
    }
}

/// Killed at the end of the test.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
