//! The limit of open files: each watcher has a connection, at both of its ends.

use std::{fs, process};

use contiv_tests::lab::{LabError, Result};

use crate::command;

/// What a process has open besides connections of watchers, and what etcd keeps for itself.
const RESERVE: u64 = 500;

/// Lets this process, and those that it starts, have so many connections.
///
/// # Errors
/// When the hard limit is lower.
pub(super) fn allow(connections: usize) -> Result<()> {
    let path = "/proc/self/limits";
    let text = fs::read_to_string(path)
        .map_err(|error| LabError::system(format!("read {path}"), error))?;
    let (soft, hard) =
        limits(&text).ok_or_else(|| LabError::Unexpected(format!("{path}: {text}")))?;
    let needed = u64::try_from(connections)
        .unwrap_or(u64::MAX)
        .saturating_add(RESERVE);
    if soft >= needed {
        return Ok(());
    }
    if hard < needed {
        return Err(LabError::Unexpected(format!(
            "{connections} connections need {needed} open files, and the hard limit is {hard}: raise it (ulimit -Hn {needed}, or \
             LimitNOFILE= of the unit)"
        )));
    }
    command::run(&[
        "prlimit",
        "--pid",
        &process::id().to_string(),
        &format!("--nofile={needed}:"),
    ])
    .map(drop)
}

/// The soft and the hard limit of open files, from `/proc/PID/limits`.
fn limits(text: &str) -> Option<(u64, u64)> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    let mut numbers = line.split_whitespace().map(|number| match number {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    });
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_open_files() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max processes             95817                95817                processes \n\
                    Max open files            1024                 unlimited            files     \n";
        assert_eq!(limits(text), Some((1024, u64::MAX)));
        assert_eq!(limits("Max processes  1  1  processes\n"), None);
    }
}
