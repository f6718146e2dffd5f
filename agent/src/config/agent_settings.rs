//! How the configuration of the agent is completed and validated.

use std::env;

use super::{Config, ConfigError, Settings, check, default_node_name};
use crate::logging::LogFormat;

impl Settings for Config {
    const DEFAULT_FILE: &'static str = "/etc/contiv/agent.toml";

    fn complete(&mut self) -> Result<(), ConfigError> {
        if self.node_name.is_empty() {
            self.node_name = default_node_name()?;
        }
        // The variable that OpenTelemetry defines for all programs, also for those without the feature.
        if cfg!(feature = "otlp") && self.otlp_endpoint.is_empty() {
            self.otlp_endpoint = env::var("OTEL_EXPORTER_OTLP_ENDPOINT").unwrap_or_default();
        }
        Ok(())
    }

    fn problems(&self) -> Vec<String> {
        check::problems(self)
    }

    fn log(&self) -> (LogFormat, &str) {
        (self.log_format, &self.log_level)
    }
}
