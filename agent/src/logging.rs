//! Log lines on standard error, as text or JSON.

use std::io;

use thiserror::Error;
use tracing_subscriber::{
    EnvFilter,
    filter::{LevelFilter, ParseError},
    fmt,
};

use crate::config::LogFormat;

/// Why a `log-level` is not understood.
#[derive(Debug, Error)]
pub enum LevelError {
    /// A part that is neither a level nor a module with a level.
    #[error("{0:?} is no level")]
    NoLevel(String),
    /// A module with a level, but not in the right form.
    #[error(transparent)]
    Directive(#[from] ParseError),
}

/// What a `log-level` lets through.
///
/// # Errors
/// When it is not understood.
pub fn filter(level: &str) -> Result<EnvFilter, LevelError> {
    // The filter itself would take a misspelt level for the name of a module.
    for part in level.split(',').filter(|part| !part.contains('=')) {
        part.parse::<LevelFilter>().map_err(|_| LevelError::NoLevel(part.to_owned()))?;
    }
    Ok(EnvFilter::builder().parse(level)?)
}

/// Starts logging for the whole process.
///
/// # Errors
/// When the level is not understood, or logging has been started before.
pub fn start(format: LogFormat, level: &str) -> anyhow::Result<()> {
    let lines = fmt().with_env_filter(filter(level)?).with_writer(io::stderr);
    let started = match format {
        // Colours only for a person who looks on.
        LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("failed to start logging: {error}"))
}
