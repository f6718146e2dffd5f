//! What the threads of the lab do.

use std::{fs, path::Path};

/// Prints what each thread of the lab does: its state, the kernel's function in which it waits, and the seconds that it ran and
/// that it waited for a processor. So a process that is stuck differs from one on a machine that is too busy.
#[expect(clippy::print_stderr, reason = "this is the output of a failed test")]
pub(crate) fn print_threads() {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    // A thread of the kernel has no command line.
    let is_program =
        |process: &Path| fs::read(process.join("cmdline")).is_ok_and(|line| !line.is_empty());
    let programs = entries(Path::new("/proc")).filter(|process| is_program(&process.path()));
    for thread in programs.flat_map(|process| entries(&process.path().join("task"))) {
        let read = |name| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        let (stat, times) = (read("stat"), read("schedstat"));
        let state = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.split(' ').next());
        let mut times = times
            .split_whitespace()
            .map(|time| time.parse::<f64>().unwrap_or(0.) / 1e9);
        eprintln!(
            "thread {} {}: {} in {}, ran {:.3} s, waited for a processor {:.3} s",
            thread.file_name().display(),
            read("comm").trim(),
            state.unwrap_or_default(),
            read("wchan"),
            times.next().unwrap_or_default(),
            times.next().unwrap_or_default(),
        );
    }
}
