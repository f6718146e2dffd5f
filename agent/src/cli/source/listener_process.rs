//! The process that listens on a port of this machine, as far as `/proc` shows it.

use std::{collections::BTreeSet, fs, io::ErrorKind, path::Path};

use rustix::process::geteuid;

/// The kernel's TCP sockets.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

/// The number of the user root.
const ROOT: u32 = 0;
/// The numbers of users that the system makes for services, as sysusers does, are below this one.
const FIRST_LOGIN_USER: u32 = 1000;

/// The state of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// The name of the agent's process, and of the user that the packages run it as.
const AGENT_NAME: &str = "contiv";

/// The process that listens on this TCP port, if a signal or a debugger has stopped it: it accepts connections, and does not
/// answer.
pub(crate) fn stopped_listener(port: u16) -> Option<u32> {
    let tables = TABLES.map(|path| fs::read_to_string(path).unwrap_or_default());
    let sockets = tables
        .iter()
        .flat_map(|table| listening_sockets(table, port));
    let sockets: BTreeSet<String> = sockets.map(|socket| socket.target).collect();
    if sockets.is_empty() {
        return None;
    }
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let mut stopped = processes.filter_map(|process| {
        let stat = fs::read_to_string(process.path().join("stat")).ok()?;
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        (is_stopped(&stat) && has_socket(&process.path(), &stat, &sockets)).then_some(pid)
    });
    stopped.next()
}

/// Checks that what listens on this TCP port of this machine is of root, of this user or of the packages' user `contiv`. What
/// another user's process answers must not be relied on: it may name files and programs.
///
/// # Errors
/// Whose it is, or why that is not known.
pub(crate) fn check_owner(port: u16) -> Result<(), String> {
    let read = |path| match fs::read_to_string(path) {
        // A kernel without IPv6 has no table for it.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        table => table.map_err(|error| format!("{path} cannot be read ({error})")),
    };
    let tables = TABLES
        .into_iter()
        .map(read)
        .collect::<Result<Vec<String>, String>>()?;
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let trusted = [ROOT, geteuid().as_raw()]
        .into_iter()
        .chain(user_of_agents(&users))
        .collect();
    check_owner_in(&tables, port, &trusted)
}

/// The user of the packages' agent, from the text of `/etc/passwd`.
fn user_of_agents(users: &str) -> Option<u32> {
    let fields = users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    let mut users = fields.filter(|fields| fields.first() == Some(&AGENT_NAME));
    users
        .next()?
        .get(2)?
        .parse()
        .ok()
        .filter(|user| *user < FIRST_LOGIN_USER)
}

fn check_owner_in(tables: &[String], port: u16, trusted: &BTreeSet<u32>) -> Result<(), String> {
    let mut sockets = tables
        .iter()
        .flat_map(|table| listening_sockets(table, port))
        .peekable();
    if sockets.peek().is_none() {
        return Err(format!(
            "{} do not show whose process listens there",
            TABLES.join(" and ")
        ));
    }
    match sockets.find(|socket| !matches!(socket.user, Some(user) if trusted.contains(&user))) {
        None => Ok(()),
        Some(Socket {
            user: Some(user), ..
        }) => Err(format!(
            "the process there is of user {user}, not of root, {AGENT_NAME} or this user"
        )),
        Some(Socket { user: None, .. }) => {
            Err("the user of the process there is not known".to_owned())
        }
    }
}

/// A socket as `/proc` shows it.
struct Socket {
    /// What the link of its file descriptor points to.
    target: String,
    /// The number of the user who opened it.
    user: Option<u32>,
}

/// The sockets that listen on a port, from the text of `/proc/net/tcp`.
fn listening_sockets(table: &str, port: u16) -> impl Iterator<Item = Socket> {
    let port = format!(":{port:04X}");
    table.lines().skip(1).filter_map(move |line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, state, ..] = fields.as_slice() else {
            return None;
        };
        let user = fields.get(7)?.parse().ok();
        let inode = fields.get(9)?;
        let is_listening = local.ends_with(&port) && *state == LISTEN;
        is_listening.then(|| Socket {
            target: format!("socket:[{inode}]"),
            user,
        })
    })
}

/// True if `/proc/PID/stat` has the state of a process that was stopped by a signal (T) or by a debugger (t).
fn is_stopped(stat: &str) -> bool {
    // The name before it may hold anything.
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
}

/// True if the process has one of these sockets, or if only its name can be seen, and that is the agent's.
fn has_socket(process: &Path, stat: &str, sockets: &BTreeSet<String>) -> bool {
    let Ok(files) = fs::read_dir(process.join("fd")) else {
        return stat
            .split_once('(')
            .is_some_and(|(_, rest)| rest.starts_with(&format!("{AGENT_NAME})")));
    };
    let mut targets = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    targets.any(|target| {
        target
            .to_str()
            .is_some_and(|target| sockets.contains(target))
    })
}

#[cfg(test)]
mod tests {
    use std::{
        net::TcpListener,
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn listening_socket_is_found_by_its_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:270F 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n   \
                     1: 0100007F:270F 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 10 0\n";
        let found: Vec<String> = listening_sockets(table, 9999)
            .map(|socket| socket.target)
            .collect();
        assert_eq!(found, ["socket:[4711]"]);
        assert_eq!(listening_sockets(table, 9998).count(), 0);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        let sockets: BTreeSet<String> = listening_sockets(&table, port)
            .map(|socket| socket.target)
            .collect();
        assert_eq!(sockets.len(), 1);
        assert!(has_socket(Path::new("/proc/self"), "", &sockets));
        assert_eq!(stopped_listener(port), None, "this process runs");
        assert_eq!(check_owner(port), Ok(()), "it is of this user");
    }

    #[test]
    fn listener_of_another_user_is_not_trusted() {
        let row = |user: &str, port: &str| {
            format!(
                "   0: 0100007F:{port} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 {user} 0 4711 1 0 100 0 0 10 0\n"
            )
        };
        let is_trusted = |rows: &[String], own_user| {
            let tables = rows.iter().map(|row| format!("  sl  local_address\n{row}"));
            check_owner_in(
                &tables.collect::<Vec<_>>(),
                9999,
                &BTreeSet::from([ROOT, own_user]),
            )
        };
        for user in ["0", "1000"] {
            assert_eq!(is_trusted(&[row(user, "270F")], 1000), Ok(()));
        }
        let other = is_trusted(&[row("0", "270F"), row("1000", "270F")], 0);
        assert_eq!(
            other,
            Err("the process there is of user 1000, not of root, contiv or this user".to_owned())
        );
        for unknown in [row("x", "270F"), row("0", "270E"), String::new()] {
            assert!(
                is_trusted(std::slice::from_ref(&unknown), 0).is_err(),
                "{unknown}"
            );
        }
        let users =
            |user| format!("root:x:0:0::/:/bin/sh\ncontiv:x:{user}:988::/:/usr/sbin/nologin\n");
        assert_eq!(user_of_agents(&users(988)), Some(988));
        assert_eq!(user_of_agents(&users(1000)), None, "a person's");
        assert_eq!(user_of_agents(""), None);
    }

    #[test]
    fn process_is_stopped_by_its_state() {
        for (stat, expected) in [
            ("7 (a) b) T 1 2", true),
            ("7 (contiv) t 1", true),
            ("7 (T) S 1 2", false),
            ("", false),
        ] {
            assert_eq!(is_stopped(stat), expected, "{stat}");
        }
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-STOP", &pid])
                .status()
                .unwrap()
                .success()
        );
        let stat = format!("/proc/{pid}/stat");
        while !is_stopped(&fs::read_to_string(&stat).unwrap()) {}
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
