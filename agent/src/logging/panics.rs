//! Writes panics to the log. The message of the standard library would block while no process reads standard error.

use std::{
    any::Any,
    backtrace::{Backtrace, BacktraceStatus},
    io::Write,
    panic::{self, PanicHookInfo},
    thread,
};

use tracing::{Dispatch, dispatcher, error};

use super::LogLines;

/// Installs a panic hook that logs to `subscriber`, which writes to `lines` at every log level.
pub(super) fn install_hook(subscriber: Dispatch, lines: LogLines) {
    panic::set_hook(Box::new(move |panic| log_to(&subscriber, &lines, panic)));
}

fn log_to(subscriber: &Dispatch, lines: &LogLines, panic: &PanicHookInfo<'_>) {
    dispatcher::with_default(subscriber, || log_panic(panic));
    // The process may end before another flush. Fails if the reader of the log is too slow.
    let _ = lines.clone().flush();
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let at = panic
        .location()
        .map(ToString::to_string)
        .unwrap_or_default();
    let message = panic_message(panic.payload());
    // Only if RUST_BACKTRACE is set.
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        error!(thread, at, %backtrace, "panicked: {message}");
    } else {
        error!(thread, at, "panicked: {message}");
    }
}

/// The message of a panic with this payload.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use tracing_subscriber::filter::LevelFilter;

    use super::*;

    #[test]
    fn panic_is_logged_at_any_level_before_unwinding() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let lines = LogLines::start(File::create(&path).unwrap()).unwrap();
        let writer = lines.clone();
        let unfiltered = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .with_max_level(LevelFilter::ERROR)
            .into();
        // Other tests panic with their usual hook.
        let (own, others) = (thread::current().id(), panic::take_hook());
        panic::set_hook(Box::new(move |panic| {
            if thread::current().id() == own {
                log_to(&unfiltered, &lines, panic);
            } else {
                others(panic);
            }
        }));
        let off = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::OFF)
            .finish();
        tracing::subscriber::with_default(off, || {
            panic::catch_unwind(|| panic!("test panic")).unwrap_err();
        });
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.contains("ERROR") && text.contains("panicked: test panic"),
            "{text}"
        );
        assert!(
            text.contains("panic_is_logged") && text.contains("panics.rs:"),
            "{text}"
        );
    }
}
