//! The configuration of `contiv controller`. One file, one struct for all controllers; keys of a single controller begin
//! with its name.

#[cfg(test)]
mod tests;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use clap::{ArgAction, Args};
use contiv_connector::ConnectorConfig;
use contiv_controller::lease::election::ElectionConfig;
use contiv_store::{AgentScope, StoreUrl, etcd::EtcdAccess};
use serde::{Deserialize, Serialize};

use super::{
    ConfigError, ControllerName, Settings, controller_name::list, etcd, host_name::host_name, text,
};
use crate::logging::LogFormat;

/// The etcd key of the lease that all instances of `contiv controller` in a cluster compete for. It is outside of the prefix
/// that agents watch.
pub const ELECTION_KEY: &str = "/contiv/controller/election";

/// The configuration of `contiv controller`. The comments are the help texts of the flags.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
#[command(next_help_heading = "Configuration (each also a key of the file)")]
pub struct ControllerConfig {
    /// Which controllers to run: external-workloads, connector, reflector
    #[arg(
        long,
        env = "CONTIV_ENABLE",
        value_name = "NAME,…",
        value_delimiter = ','
    )]
    pub enable: Vec<ControllerName>,

    /// The etcd of the cluster: `etcd://HOST:PORT[,HOST:PORT…]`, or `etcds://…` with TLS
    #[arg(long, env = "CONTIV_STORE", value_name = "URL")]
    #[serde(with = "text")]
    pub store: StoreUrl,

    /// CA certificates (PEM) of the members of an `etcds://` store [default: the system's]
    #[arg(long, env = "CONTIV_ETCD_CA_FILE", value_name = "FILE", value_parser = text::path())]
    pub etcd_ca_file: PathBuf,

    /// Client certificate (PEM), for an `etcds://` store that requires one
    #[arg(long, env = "CONTIV_ETCD_CERT_FILE", value_name = "FILE", value_parser = text::path())]
    pub etcd_cert_file: PathBuf,

    /// Private key (PEM) of that certificate
    #[arg(long, env = "CONTIV_ETCD_KEY_FILE", value_name = "FILE", value_parser = text::path())]
    pub etcd_key_file: PathBuf,

    /// User name for etcd
    #[arg(long, env = "CONTIV_ETCD_USER", value_name = "NAME")]
    pub etcd_user: String,

    /// File with the password of that user
    #[arg(long, env = "CONTIV_ETCD_PASSWORD_FILE", value_name = "FILE", value_parser = text::path())]
    pub etcd_password_file: PathBuf,

    /// Name of this instance, shown as the holder of the lease [default: the host name]
    #[arg(long, env = "CONTIV_IDENTITY", value_name = "NAME")]
    pub identity: String,

    /// How long after its last renewal the lease of the active instance expires; whole seconds
    #[arg(long, env = "CONTIV_LEASE_DURATION", value_name = "TIME", value_parser = humantime::parse_duration)]
    #[serde(with = "text::duration")]
    pub lease_duration: Duration,

    /// How long after its last successful renewal the active instance steps down
    #[arg(long, env = "CONTIV_LEASE_RENEW_DEADLINE", value_name = "TIME", value_parser = humantime::parse_duration)]
    #[serde(with = "text::duration")]
    pub lease_renew_deadline: Duration,

    /// How often the active instance renews the lease, and others try to acquire it
    #[arg(long, env = "CONTIV_LEASE_RETRY_PERIOD", value_name = "TIME", value_parser = humantime::parse_duration)]
    #[serde(with = "text::duration")]
    pub lease_retry_period: Duration,

    /// Configuration file (TOML) of the controller connector, with its registries
    #[arg(long, env = "CONTIV_CONNECTOR_FILE", value_name = "FILE", value_parser = text::path())]
    pub connector_file: PathBuf,

    /// Address and port of the debug HTTP
    #[arg(long, env = "CONTIV_LISTEN", value_name = "ADDR:PORT")]
    pub listen: SocketAddr,

    /// Export the metrics of the work queues, `workqueue_…`
    #[arg(long, env = "CONTIV_EXPORT_QUEUE_METRICS", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub export_queue_metrics: bool,

    /// For `reflector`: the kubeconfig of the cluster [default: a pod's service account, otherwise as kubectl]
    #[arg(long, env = "CONTIV_REFLECTOR_KUBECONFIG", value_name = "FILE", value_parser = text::path())]
    pub reflector_kubeconfig: PathBuf,

    /// For `reflector`: the context of that kubeconfig [default: its current one]
    #[arg(long, env = "CONTIV_REFLECTOR_CONTEXT", value_name = "NAME")]
    pub reflector_context: String,

    /// Format of the log lines on standard error
    #[arg(long, env = "CONTIV_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: LogFormat,

    /// What to log: error, warn, info, debug or trace; also by module, as in `info,contiv_controller=debug`
    #[arg(long, env = "CONTIV_LOG_LEVEL", value_name = "LEVEL")]
    pub log_level: String,
}

impl Default for ControllerConfig {
    /// All defaults are defined here.
    fn default() -> Self {
        let election = ElectionConfig::new(ELECTION_KEY, "");
        Self {
            enable: Vec::new(),
            store: StoreUrl::Etcd {
                tls: false,
                endpoints: vec!["127.0.0.1:2379".to_owned()],
                scope: AgentScope::default(),
            },
            etcd_ca_file: PathBuf::new(),
            etcd_cert_file: PathBuf::new(),
            etcd_key_file: PathBuf::new(),
            etcd_user: String::new(),
            etcd_password_file: PathBuf::new(),
            identity: String::new(),
            lease_duration: election.ttl,
            lease_renew_deadline: election.step_down_after,
            lease_retry_period: election.keep_alive_every,
            connector_file: PathBuf::from("/etc/contiv/connector.toml"),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 9998)),
            export_queue_metrics: true,
            reflector_kubeconfig: PathBuf::new(),
            reflector_context: String::new(),
            log_format: LogFormat::Text,
            log_level: "info".to_owned(),
        }
    }
}

impl ControllerConfig {
    /// The access to etcd.
    pub fn etcd_access(&self) -> EtcdAccess {
        etcd::access(
            &self.store,
            [
                &self.etcd_ca_file,
                &self.etcd_cert_file,
                &self.etcd_key_file,
                &self.etcd_password_file,
            ],
            &self.etcd_user,
        )
    }

    /// The settings of the leader election.
    pub fn election(&self) -> ElectionConfig {
        ElectionConfig {
            ttl: self.lease_duration,
            step_down_after: self.lease_renew_deadline,
            keep_alive_every: self.lease_retry_period,
            ..ElectionConfig::new(ELECTION_KEY, &self.identity)
        }
    }
}

impl Settings for ControllerConfig {
    const DEFAULT_FILE: &'static str = "/etc/contiv/controller.toml";

    fn complete(&mut self) -> Result<(), ConfigError> {
        if self.identity.is_empty() {
            self.identity = host_name("identity")?;
        }
        Ok(())
    }

    fn log(&self) -> (LogFormat, &str) {
        (self.log_format, &self.log_level)
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.enable.is_empty() {
            problems.push(format!(
                "enable: name at least one of {}",
                list(ControllerName::ALL)
            ));
        }
        for (position, name) in self.enable.iter().enumerate() {
            if self.enable[..position].contains(name) {
                problems.push(format!("enable: {name} is named twice; name it once"));
            }
        }
        if self.enable.contains(&ControllerName::Connector)
            && let Err(error) = ConnectorConfig::load(&self.connector_file)
        {
            problems.extend(
                error
                    .0
                    .into_iter()
                    .map(|problem| format!("connector-file: {problem}")),
            );
        }
        let unsupported = match self.store {
            StoreUrl::Dir { .. } => Some("a folder"),
            StoreUrl::Kube(_) => Some("Kubernetes"),
            StoreUrl::Etcd { .. } => None,
        };
        if let Some(unsupported) = unsupported {
            problems.push(format!(
                "store: {} is {unsupported}, in which no election can be held; use etcd://HOST:PORT",
                self.store
            ));
        }
        problems.extend(etcd::problems(&self.store, &self.etcd_access()));
        if self.lease_duration.subsec_nanos() != 0 {
            problems.push("lease-duration: etcd counts in whole seconds".to_owned());
        }
        let times = [
            Duration::ZERO,
            self.lease_retry_period,
            self.lease_renew_deadline,
            self.lease_duration,
        ];
        if !times.is_sorted_by(|shorter, longer| shorter < longer) {
            problems.push(
                "lease-retry-period: it must be less than lease-renew-deadline, and that less than lease-duration; \
                 the defaults are 2s, 10s and 30s"
                    .to_owned(),
            );
        }
        if let Err(error) = crate::logging::filter(&self.log_level) {
            problems.push(format!(
                "log-level: {error}; use a level such as info, or info,contiv_controller=debug"
            ));
        }
        problems
    }
}
