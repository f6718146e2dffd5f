//! Log lines on standard error, as text or JSON.

mod format;
mod journal;
mod lines;
mod one_line;
mod panics;

use std::{fmt as text, io, sync::Arc};

use anyhow::Context;
use thiserror::Error;
use tokio::sync::watch;
use tracing_subscriber::{
    EnvFilter,
    filter::{LevelFilter, ParseError},
    fmt,
};

use self::{journal::Journal, one_line::ControlCharacterEscaper};

pub use format::LogFormat;
pub use lines::LogLines;
pub(crate) use panics::panic_message;

/// Why a `log-level` is invalid.
#[derive(Debug, Error)]
pub enum LevelError {
    /// A part that is neither a level nor a module with a level.
    #[error("{0:?} is not a log level")]
    NoLevel(String),
    /// An empty level, alone or of a module.
    #[error("the level{} is missing", .0.as_ref().map_or_else(String::new, |module| format!(" of {module:?}")))]
    Missing(Option<String>),
    /// A span, which cannot be selected.
    #[error(
        "{0:?} names a span; only modules can have a level of their own, as in info,contiv_store=debug"
    )]
    Span(String),
    /// A module with a level, in the wrong form.
    #[error(transparent)]
    Directive(#[from] ParseError),
    /// Logging has ended.
    #[error("the level cannot be changed: {0}")]
    Reload(#[from] tracing_subscriber::reload::Error),
}

/// The current level, and the way to change it. Clones change the same.
#[derive(Clone)]
pub struct LogLevel {
    current: watch::Sender<String>,
    reload: Arc<Reload>,
}

type Reload = dyn Fn(EnvFilter) -> Result<(), tracing_subscriber::reload::Error> + Send + Sync;

impl LogLevel {
    /// `reload` sets a filter; `level` is that of the current one.
    pub(crate) fn new(
        level: &str,
        reload: impl Fn(EnvFilter) -> Result<(), tracing_subscriber::reload::Error>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self {
            current: watch::Sender::new(level.to_owned()),
            reload: Arc::new(reload),
        }
    }

    /// The current level, in the form of the configuration.
    pub fn get(&self) -> String {
        self.current.borrow().clone()
    }

    /// Sets another level.
    ///
    /// # Errors
    /// When it is invalid; the current one stays.
    pub fn set(&self, level: &str) -> Result<(), LevelError> {
        (self.reload)(filter(level)?)?;
        self.current.send_replace(level.to_owned());
        Ok(())
    }
}

impl text::Debug for LogLevel {
    fn fmt(&self, f: &mut text::Formatter<'_>) -> text::Result {
        f.debug_tuple("LogLevel").field(&self.get()).finish()
    }
}

/// The filter of a `log-level`.
///
/// # Errors
/// When it is invalid.
pub fn filter(level: &str) -> Result<EnvFilter, LevelError> {
    // The filter panics on spaces around a part.
    let parts: Vec<&str> = level
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect();
    // It would accept an empty level too.
    if parts.is_empty() {
        return Err(LevelError::Missing(None));
    }
    if let Some(module) = parts.iter().find_map(|part| part.strip_suffix('=')) {
        return Err(LevelError::Missing(Some(module.to_owned())));
    }
    // Spans and values of their fields are not supported: some patterns take minutes to compile, and the order of others is
    // undefined.
    if let Some(part) = parts.iter().find(|part| part.contains('[')) {
        return Err(LevelError::Span((*part).to_owned()));
    }
    // It would also take a misspelled level for the name of a module.
    for part in parts.iter().filter(|part| !part.contains('=')) {
        part.parse::<LevelFilter>()
            .map_err(|_| LevelError::NoLevel((*part).to_owned()))?;
    }
    Ok(EnvFilter::builder().parse(parts.join(","))?)
}

/// Starts logging for the whole process, including panics. Logging never waits for a slow reader. Text written to the returned
/// lines follows earlier log lines; flush them at the end.
///
/// # Errors
/// When the level is invalid, logging was started before, or no thread can be started.
pub fn start(format: LogFormat, level: &str) -> anyhow::Result<(LogLevel, LogLines)> {
    let out =
        LogLines::to_standard_error().context("failed to start the thread that writes the log")?;
    let (writer, filter) = (out.clone(), filter(level)?);
    let (started, log_level, unfiltered) = match format {
        LogFormat::Text if journal::reads_standard_error() => {
            // The journal has its own time, and no colours.
            let lines = || {
                fmt()
                    .with_writer(Journal::new(writer.clone()))
                    .without_time()
                    .with_ansi(false)
            };
            let unfiltered = lines().with_max_level(LevelFilter::ERROR).into();
            let lines = lines().with_env_filter(filter).with_filter_reloading();
            let handle = lines.reload_handle();
            (
                lines.try_init(),
                LogLevel::new(level, move |filter| handle.reload(filter)),
                unfiltered,
            )
        }
        LogFormat::Text => {
            // Colours only on a terminal.
            let has_colours = io::IsTerminal::is_terminal(&io::stderr());
            let lines = || {
                let writer = writer.clone();
                fmt()
                    .with_writer(move || ControlCharacterEscaper::new(writer.clone(), has_colours))
                    .with_ansi(has_colours)
            };
            let unfiltered = lines().with_max_level(LevelFilter::ERROR).into();
            let lines = lines().with_env_filter(filter).with_filter_reloading();
            let handle = lines.reload_handle();
            (
                lines.try_init(),
                LogLevel::new(level, move |filter| handle.reload(filter)),
                unfiltered,
            )
        }
        LogFormat::Json => {
            let lines = || {
                let writer = writer.clone();
                fmt()
                    .with_writer(move || writer.clone())
                    .json()
                    .flatten_event(true)
            };
            let unfiltered = lines().with_max_level(LevelFilter::ERROR).into();
            let lines = lines().with_env_filter(filter).with_filter_reloading();
            let handle = lines.reload_handle();
            (
                lines.try_init(),
                LogLevel::new(level, move |filter| handle.reload(filter)),
                unfiltered,
            )
        }
    };
    started.map_err(|error| anyhow::anyhow!("failed to start logging: {error}"))?;
    panics::install_hook(unfiltered, out.clone());
    Ok((log_level, out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_without_level_is_refused() {
        for (level, expected) in [
            ("", "the level is missing"),
            (" \n", "the level is missing"),
            (",", "the level is missing"),
            (
                "info,contiv_store=",
                "the level of \"contiv_store\" is missing",
            ),
        ] {
            let refused = filter(level)
                .map(|filter| filter.to_string())
                .map_err(|error| error.to_string());
            assert_eq!(refused, Err(expected.to_owned()), "{level:?}");
        }
        assert_eq!(filter("info,").unwrap().to_string(), "info");
    }

    #[test]
    fn modules_can_have_level_and_spans_cannot() {
        let printed = |level: &str| filter(level).map(|filter| filter.to_string());
        assert_eq!(
            printed(" info , contiv_store=debug").unwrap(),
            "contiv_store=debug,info"
        );
        let refused = printed("info,contiv_store[list{prefix=(a+)+}]=debug")
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("names a span") && refused.contains("contiv_store["),
            "{refused}"
        );
        assert!(
            printed("inof")
                .unwrap_err()
                .to_string()
                .contains("not a log level")
        );
    }
}
