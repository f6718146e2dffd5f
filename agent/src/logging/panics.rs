//! What panics is logged like everything else: the standard library's word of it would wait for whoever reads standard error.

use std::{
    any::Any,
    backtrace::{Backtrace, BacktraceStatus},
    panic::{self, PanicHookInfo},
    thread,
};

use tracing::error;

/// From now on.
pub(super) fn log() {
    panic::set_hook(Box::new(log_panic));
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let at = panic.location().map(ToString::to_string).unwrap_or_default();
    let message = panic_message(panic.payload());
    // Only if RUST_BACKTRACE asks for it.
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        error!(thread, at, %backtrace, "panicked: {message}");
    } else {
        error!(thread, at, "panicked: {message}");
    }
}

/// What was said by the panic with this payload.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};

    use super::*;

    #[test]
    fn panic_is_logged_with_its_thread_and_place() {
        let (mut reader, writer) = pipe().unwrap();
        let lines =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.try_clone().unwrap());
        let subscriber = lines.finish();
        // Other tests panic as they are used to.
        let (own, others) = (thread::current().id(), panic::take_hook());
        panic::set_hook(Box::new(move |panic| {
            if thread::current().id() == own { log_panic(panic) } else { others(panic) }
        }));
        tracing::subscriber::with_default(subscriber, || {
            panic::catch_unwind(|| panic!("as the test wants it")).unwrap_err();
        });
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert!(text.contains("ERROR") && text.contains("panicked: as the test wants it"), "{text}");
        assert!(text.contains("panic_is_logged") && text.contains("panics.rs:"), "{text}");
    }
}
