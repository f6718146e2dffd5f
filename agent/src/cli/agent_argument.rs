//! Which agent to ask, and asking it.

use anyhow::Context;
use clap::Args;
use serde::de::DeserializeOwned;

use super::http_client::{self, Server};

/// Which agent to ask.
#[derive(Debug, Clone, Args)]
pub(super) struct AgentArgument {
    /// Where the agent listens (its --listen)
    #[arg(long, env = "CONTIV_AGENT", value_name = "URL", default_value = "http://127.0.0.1:9999")]
    pub(super) agent: Server,
}

impl AgentArgument {
    /// The answer to a GET.
    ///
    /// # Errors
    /// When there is none, or it is not of the form that an agent of this version gives it.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let text = http_client::get(&self.agent, path)?;
        serde_json::from_str(&text).with_context(|| {
            format!("{} answers {path} in another form: is that an agent of this version?", self.agent)
        })
    }
}
