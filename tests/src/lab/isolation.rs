//! Runs a test, or a whole program, again inside its own namespaces.
//!
//! A user namespace cannot be entered by a process with threads, and the test harness has threads. So the program is started
//! again by `unshare` for one test only, and recognises the inner run by an environment variable.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use nix::mount::{MsFlags, mount};

use super::{Lab, LabError, Result, process::print_logs, wait::wait_at_most};

/// Set for the inner run: a file that it writes, which proves that it ran.
const MARK_VARIABLE: &str = "CONTIV_LAB_MARK";
/// Set by `scripts/test`: a file that collects the name of every test that ran inside.
const LEDGER_VARIABLE: &str = "CONTIV_LAB_LEDGER";
/// After this time a test or program is killed with all its processes, unless the caller sets another limit.
const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(300);
/// Makes an ordinary user root inside.
const USER_NAMESPACE: [&str; 2] = ["--user", "--map-root-user"];

/// Runs `body` in its own lab. `test` is the path of the calling test, as `cargo test -- --list` prints it.
///
/// No root is needed. The output of the inner run is printed, and everything that it created is gone afterwards.
///
/// # Errors
/// When namespaces cannot be made, when `test` is not the name of the caller, when the time limit is over, and when `body`
/// fails or panics.
pub fn isolated(test: &str, body: impl FnOnce(&Lab) -> Result<()>) -> Result<()> {
    isolated_within(DEFAULT_TIME_LIMIT, test, body)
}

/// The same with another time limit.
///
/// # Errors
/// As [`isolated`].
pub fn isolated_within(
    limit: Duration,
    test: &str,
    body: impl FnOnce(&Lab) -> Result<()>,
) -> Result<()> {
    if let Some(mark) = env::var_os(MARK_VARIABLE) {
        return run_inside(Path::new(&mark), body);
    }
    let arguments = [
        test,
        "--exact",
        "--include-ignored",
        "--nocapture",
        "--test-threads=1",
    ]
    .map(OsString::from);
    let mut output =
        tempfile::tempfile().map_err(|error| LabError::system("make a file for output", error))?;
    let outcome = run_again(limit, &USER_NAMESPACE, &arguments, |command| {
        command
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?);
        Ok(())
    });
    show(&mut output);
    outcome?;
    record(test)
}

/// The same for a binary: it is started again with its arguments and keeps the terminal.
pub fn isolated_program(body: impl FnOnce(&Lab) -> Result<()>) -> Result<()> {
    program(DEFAULT_TIME_LIMIT, &USER_NAMESPACE, body)
}

/// The same for a benchmark, with its own time limit. If the caller is root, it stays in its user namespace, where the kernel
/// grants the socket buffers that an agent has in production. Otherwise it behaves like [`isolated_program`].
pub fn isolated_measurement(limit: Duration, body: impl FnOnce(&Lab) -> Result<()>) -> Result<()> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let all_users = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let first_namespace = all_users.split_whitespace().eq(["0", "0", "4294967295"]);
    program(
        limit,
        if is_root && first_namespace {
            &[]
        } else {
            &USER_NAMESPACE
        },
        body,
    )
}

fn program(
    limit: Duration,
    unshare_options: &[&str],
    body: impl FnOnce(&Lab) -> Result<()>,
) -> Result<()> {
    match env::var_os(MARK_VARIABLE) {
        Some(mark) => run_inside(Path::new(&mark), body),
        None => run_again(
            limit,
            unshare_options,
            &env::args_os().skip(1).collect::<Vec<_>>(),
            |_| Ok(()),
        ),
    }
}

fn run_inside(mark: &Path, body: impl FnOnce(&Lab) -> Result<()>) -> Result<()> {
    let own_namespace = network_namespace()?;
    fs::write(mark, own_namespace.as_os_str().as_encoded_bytes())
        .map_err(|error| LabError::system(format!("write {}", mark.display()), error))?;
    // `ip netns` keeps its names below /run; logs and state of the lab go there too and vanish with it.
    mount(
        Some("tmpfs"),
        "/run",
        Some("tmpfs"),
        MsFlags::empty(),
        None::<&str>,
    )
    .map_err(|error| LabError::system("mount a tmpfs on /run", error))?;
    let logs = PrintLogsUnlessPassed { passed: false };
    let result = body(&Lab::build()?);
    logs.passed_if(result.is_ok());
    result
}

/// Prints the logs of the lab's processes if the test failed, by an error or a panic.
struct PrintLogsUnlessPassed {
    passed: bool,
}

impl PrintLogsUnlessPassed {
    fn passed_if(mut self, passed: bool) {
        self.passed = passed;
    }
}

impl Drop for PrintLogsUnlessPassed {
    fn drop(&mut self) {
        if !self.passed {
            print_logs();
        }
    }
}

fn run_again(
    limit: Duration,
    unshare_options: &[&str],
    arguments: &[OsString],
    redirect: impl FnOnce(&mut Command) -> io::Result<()>,
) -> Result<()> {
    let failed = |error| LabError::system("start this program again in new namespaces", error);
    let mark = tempfile::NamedTempFile::new().map_err(failed)?;
    let mut command = Command::new("setpriv");
    // If this process is killed, `unshare` is killed; then the first process inside is killed, and with it the kernel ends all
    // others inside. So no process is left over.
    command
        .args(["--pdeathsig", "KILL", "unshare"])
        .args(unshare_options)
        .args(["--net", "--mount", "--pid"]);
    command
        .args(["--fork", "--kill-child", "--mount-proc"])
        .arg(env::current_exe().map_err(failed)?);
    command
        .args(arguments)
        .env(MARK_VARIABLE, mark.path())
        .env("PATH", search_path())
        .stdin(Stdio::null());
    redirect(&mut command).map_err(failed)?;
    let status = wait(limit, command.spawn().map_err(failed)?)?;
    let inner_namespace = fs::read(mark.path()).map_err(failed)?;
    if inner_namespace.is_empty() {
        return Err(LabError::NotIsolated(if status.success() {
            format!(
                "{arguments:?} named no test; the name given to `isolated` must be that of the test"
            )
        } else {
            format!(
                "`unshare` could not make namespaces ({status}). Unprivileged user namespaces must be allowed: \
                 see the sysctls user.max_user_namespaces, kernel.unprivileged_userns_clone and \
                 kernel.apparmor_restrict_unprivileged_userns; scripts/deps checks them"
            )
        }));
    }
    if inner_namespace == network_namespace()?.as_os_str().as_encoded_bytes() {
        return Err(LabError::NotIsolated(
            "the inner run was in the namespace of the outer one".to_owned(),
        ));
    }
    if status.success() {
        Ok(())
    } else {
        Err(LabError::Inside(status))
    }
}

/// The search path of an ordinary user lacks the folders of `ip` and `nft`.
fn search_path() -> OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/local/sbin:/usr/sbin:/sbin");
    path
}

fn wait(limit: Duration, mut child: Child) -> Result<ExitStatus> {
    let ended = wait_at_most("the run inside the namespaces ends", limit, || {
        child.try_wait().transpose()
    });
    if ended.is_err() {
        // It may just have ended; then there is nothing to kill.
        let _ = child.kill();
        let _ = child.wait();
    }
    ended?.map_err(|error| LabError::system("wait for the run inside the namespaces", error))
}

/// The kernel's name of the network namespace of this process: `net:[…]`.
fn network_namespace() -> Result<PathBuf> {
    fs::read_link("/proc/self/ns/net")
        .map_err(|error| LabError::system("read /proc/self/ns/net", error))
}

/// Prints with `print!`, which the harness captures and shows when the test fails.
#[expect(clippy::print_stdout, reason = "this is the output of the test")]
fn show(output: &mut File) {
    let mut bytes = Vec::new();
    if output
        .rewind()
        .and_then(|()| output.read_to_end(&mut bytes))
        .is_ok()
    {
        print!("{}", String::from_utf8_lossy(&bytes));
    }
}

/// Records in the ledger, if there is one, that this test ran inside and passed.
fn record(test: &str) -> Result<()> {
    let Some(ledger) = env::var_os(LEDGER_VARIABLE) else {
        return Ok(());
    };
    let failed = |error| {
        LabError::system(
            format!("write to the ledger {}", Path::new(&ledger).display()),
            error,
        )
    };
    let program = env::current_exe().map_err(failed)?;
    // Cargo names the program of a test target `target-hash`.
    let stem = program
        .file_stem()
        .and_then(OsStr::to_str)
        .unwrap_or_default();
    let target = stem.rsplit_once('-').map_or(stem, |(target, _)| target);
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&ledger)
        .map_err(failed)?;
    file.write_all(format!("{target}::{test}\n").as_bytes())
        .map_err(failed)
}

#[cfg(test)]
mod tests;
