//! `contiv controller`

use clap::Args;

use crate::cli::{Outcome, Terminal, source::config_arguments::ConfigArguments};
use crate::{config::controller::ControllerConfig, controller};

/// Run cluster-wide controllers, which fill the store: external workloads, other registries, Kubernetes
///
/// Several instances may run; one of them is active, and another takes over when it ends, dies or is isolated. SIGTERM and
/// SIGINT stop it: work in progress is finished, and the lease is released. Exit codes: 0 it was stopped, or the configuration
/// is valid; 1 it could not start, or has failed; 2 wrong usage or configuration.
#[derive(Debug, Args)]
pub(crate) struct Controller {
    #[command(flatten)]
    config: ConfigArguments<ControllerConfig>,
}

impl Controller {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        self.config.run(terminal, controller::run)
    }
}
