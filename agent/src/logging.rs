//! Log lines on standard error, as text or JSON.

use std::io;

use tracing_subscriber::{EnvFilter, filter::ParseError, fmt};

use crate::config::LogFormat;

/// What a `log-level` lets through.
///
/// # Errors
/// When it is not understood.
pub fn filter(level: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::builder().parse(level)
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
