//! The process that listens on a port of this machine, as far as `/proc` shows it.

use std::{collections::BTreeSet, fs, path::Path};

/// The state of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// The name of the agent's process, for callers that may not see whose a socket is.
const AGENT_NAME: &str = "contiv";

/// The process that listens on this TCP port, if a signal or a debugger has stopped it: it accepts connections, and does not
/// answer.
pub(super) fn stopped_listener(port: u16) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let sockets: BTreeSet<String> = tables.iter().flat_map(|table| listening_sockets(table, port)).collect();
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

/// The inodes of sockets that listen on a port, from the text of `/proc/net/tcp`.
fn listening_sockets(table: &str, port: u16) -> impl Iterator<Item = String> {
    let port = format!(":{port:04X}");
    table.lines().skip(1).filter_map(move |line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, state, ..] = fields.as_slice() else { return None };
        let inode = fields.get(9)?;
        (local.ends_with(&port) && *state == LISTEN).then(|| format!("socket:[{inode}]"))
    })
}

/// True if `/proc/PID/stat` has the state of a process that was stopped by a signal (T) or by a debugger (t).
fn is_stopped(stat: &str) -> bool {
    // The name before it may hold anything.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
}

/// True if the process has one of these sockets, or if only its name can be seen, and that is the agent's.
fn has_socket(process: &Path, stat: &str, sockets: &BTreeSet<String>) -> bool {
    let Ok(files) = fs::read_dir(process.join("fd")) else {
        return stat.split_once('(').is_some_and(|(_, rest)| rest.starts_with(&format!("{AGENT_NAME})")));
    };
    let mut targets = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    targets.any(|target| target.to_str().is_some_and(|target| sockets.contains(target)))
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
        assert_eq!(listening_sockets(table, 9999).collect::<Vec<_>>(), ["socket:[4711]"]);
        assert_eq!(listening_sockets(table, 9998).count(), 0);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        let sockets: BTreeSet<String> = listening_sockets(&table, port).collect();
        assert_eq!(sockets.len(), 1);
        assert!(has_socket(Path::new("/proc/self"), "", &sockets));
        assert_eq!(stopped_listener(port), None, "this process runs");
    }

    #[test]
    fn process_is_stopped_by_its_state() {
        for (stat, expected) in
            [("7 (a) b) T 1 2", true), ("7 (contiv) t 1", true), ("7 (T) S 1 2", false), ("", false)]
        {
            assert_eq!(is_stopped(stat), expected, "{stat}");
        }
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
        let stat = format!("/proc/{pid}/stat");
        while !is_stopped(&fs::read_to_string(&stat).unwrap()) {}
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
