//! Runs programs of the system, for information that no kernel interface provides.

use std::{
    io::{self, Read},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// How many lines of a journal are included: weeks, for a quiet agent.
const JOURNAL_LINES: &str = "20000";

/// The limits of most programs; on a machine that is in trouble one may never end.
const LIMITS: Limits = Limits {
    time: Duration::from_secs(20),
    bytes: 64 << 20,
};

/// The largest part of a program's error output that is shown.
const MAX_ERROR_BYTES: u64 = 4096;

/// The interval of checks whether a program that has closed its output has ended.
const EXIT_POLL: Duration = Duration::from_millis(10);

/// The limits of a program: how long it may run, and how much it may print.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) time: Duration,
    pub(crate) bytes: usize,
}

/// The output of a program.
#[derive(Debug, Default)]
pub(crate) struct CommandOutput {
    pub(crate) text: String,
    /// Why the output is not complete.
    pub(crate) problem: Option<String>,
}

/// Runs a program of the system. It is killed if it takes too long or prints too much; its output until then is returned.
pub(crate) fn run(program: &str, arguments: &[&str]) -> CommandOutput {
    run_within(LIMITS, program, arguments)
}

/// The newest lines of the journal of a unit.
pub(crate) fn journal(unit: &str) -> CommandOutput {
    let form = ["--no-pager", "--output", "short-iso-precise"];
    run(
        "journalctl",
        &[&["--unit", unit, "--lines", JOURNAL_LINES], &form[..]].concat(),
    )
}

/// Runs a program with these limits of time and output.
pub(crate) fn run_within(limits: Limits, program: &str, arguments: &[&str]) -> CommandOutput {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let named = |problem: String| Some(format!("{program} {}: {problem}", arguments.join(" ")));
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let problem = named(format!("failed to run it: {error}; is it installed?"));
            return CommandOutput {
                problem,
                ..CommandOutput::default()
            };
        }
    };
    let deadline = Instant::now() + limits.time;
    let output = child.stdout.take().map(read_in_thread);
    let errors = child.stderr.take().map(read_errors_in_thread);
    let mut bytes = Vec::new();
    let result = output
        .map_or(Ok(()), |output| {
            collect(&output, &mut bytes, limits, deadline)
        })
        .and_then(|()| wait(&mut child, limits, deadline));
    let problem = match result {
        Ok(status) if status.success() => None,
        Ok(status) => {
            let errors = errors
                .and_then(|errors| errors.recv_timeout(limits.time).ok())
                .unwrap_or_default();
            Some(if errors.is_empty() {
                status.to_string()
            } else {
                errors
            })
        }
        Err(reason) => {
            // It may have ended by itself just now.
            let _ = child.kill();
            let _ = child.wait();
            Some(reason)
        }
    };
    CommandOutput {
        text: String::from_utf8_lossy(&bytes).into_owned(),
        problem: problem.and_then(named),
    }
}

/// Reads a pipe in a thread, so that the caller can stop waiting: a child of the program may keep the other end open.
fn read_in_thread(mut stream: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(size @ 1..) = stream.read(&mut buffer) {
            if sender.send(buffer[..size].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Reads the beginning of a program's error output in a thread. The rest is read and dropped, so that the program does not
/// block on a full pipe.
fn read_errors_in_thread(mut stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut text = Vec::new();
        // The text read before a failure is better than none.
        let _ = stream.by_ref().take(MAX_ERROR_BYTES).read_to_end(&mut text);
        let _ = sender.send(String::from_utf8_lossy(&text).trim().to_owned());
        let _ = io::copy(&mut stream, &mut io::sink());
    });
    receiver
}

fn collect(
    output: &Receiver<Vec<u8>>,
    bytes: &mut Vec<u8>,
    limits: Limits,
    deadline: Instant,
) -> Result<(), String> {
    loop {
        match output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(more) => bytes.extend(more),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => return Err(timeout_error(limits)),
        }
        if bytes.len() > limits.bytes {
            bytes.truncate(limits.bytes);
            return Err(format!(
                "it prints more than {} bytes; the rest is left out",
                limits.bytes
            ));
        }
    }
}

fn wait(child: &mut Child, limits: Limits, deadline: Instant) -> Result<ExitStatus, String> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if Instant::now() < deadline => thread::sleep(EXIT_POLL),
            Ok(None) => return Err(timeout_error(limits)),
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn timeout_error(limits: Limits) -> String {
    format!("it does not end within {:?}", limits.time)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMPLE: Limits = Limits {
        time: Duration::from_secs(60),
        bytes: 1 << 20,
    };

    fn shell(limits: Limits, script: &str) -> (String, String) {
        let CommandOutput { text, problem } = run_within(limits, "sh", &["-c", script]);
        (text, problem.unwrap_or_default())
    }

    #[test]
    fn program_that_ends_well_has_no_problem() {
        assert_eq!(
            shell(AMPLE, "echo one; echo noise >&2"),
            ("one\n".to_owned(), String::new())
        );
    }

    #[test]
    fn program_that_fails_is_shown_with_its_reason() {
        let (text, problem) = shell(AMPLE, "echo one; echo reason >&2; exit 3");
        assert_eq!(
            (text.as_str(), problem.contains("reason")),
            ("one\n", true),
            "{problem}"
        );
        let (_, problem) = shell(AMPLE, "exit 3");
        assert!(problem.contains("exit status: 3"), "{problem}");
        let missing = run("contiv-no-such-program", &[]);
        assert!(
            missing
                .problem
                .is_some_and(|problem| problem.contains("is it installed?"))
        );
    }

    #[test]
    fn program_that_does_not_end_is_ended_and_shown_so_far() {
        let brief = Limits {
            time: Duration::from_millis(300),
            ..AMPLE
        };
        // The second one leaves the pipe to a child, the third one closes it.
        for script in [
            "echo one; exec sleep 30",
            "echo one; sleep 30",
            "echo one; exec >&-; exec sleep 30",
        ] {
            let (text, problem) = shell(brief, script);
            assert_eq!(
                (text.as_str(), problem.contains("does not end within 300ms")),
                ("one\n", true),
                "{problem}"
            );
        }
    }

    #[test]
    fn program_that_prints_without_end_is_cut() {
        let (text, problem) = shell(AMPLE, "exec yes");
        assert_eq!(
            (text.len(), problem.contains("more than 1048576 bytes")),
            (1 << 20, true),
            "{problem}"
        );
    }
}
