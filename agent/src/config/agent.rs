//! The configuration of `contiv agent`.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use clap::{ArgAction, Args, ValueEnum};
use contiv_model::{
    FailoverMode, InterfacePattern, LocalDetect, NodeName, NodePortAddresses, ProcessorConfig,
    ServiceInterfaces,
};
use contiv_renderer::route::{AddressKind, DirectOptions, Grouping, RouteOptions};
use contiv_store::{StoreUrl, etcd::EtcdAccess};
use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use super::{OptionalAddress, RendererName, etcd, text};
use crate::logging::LogFormat;

/// The configuration of `contiv agent`. The comments are the help texts of the flags.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting of its own"
)]
#[command(next_help_heading = "Configuration (each also a key of the file)")]
pub struct Config {
    /// Name of this node in the store [default: the host name]
    #[arg(long, env = "CONTIV_NODE_NAME", value_name = "NAME")]
    pub node_name: String,

    /// Where services and endpoints are: `dir:PATH`, `etcd://HOST:PORT[,…][?pods=all]`, `etcds://…` with TLS, or `kube:[KUBECONFIG]`
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

    /// Renderers to run, in this order: nftables, route, dry-run
    #[arg(
        long,
        env = "CONTIV_RENDERERS",
        value_name = "NAME,…",
        value_delimiter = ','
    )]
    pub renderers: Vec<RendererName>,

    /// Keep all other processes from changing or removing our nftables table (Linux 6.9 or later)
    #[arg(long, env = "CONTIV_OWN_TABLE", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub own_table: bool,

    /// Addresses that the renderer `route` offers to routing daemons: cluster, external, load-balancer; empty for none
    #[arg(
        long,
        env = "CONTIV_ROUTE_ADVERTISE",
        value_name = "KIND,…",
        value_delimiter = ','
    )]
    #[serde(with = "text::list")]
    pub route_advertise: Vec<AddressKind>,

    /// Routing table with these routes
    #[arg(long, env = "CONTIV_ROUTE_ADVERTISE_TABLE", value_name = "N")]
    pub route_advertise_table: u32,

    /// Withdraw these routes when the agent is stopped, so that traffic goes to other nodes
    #[arg(long, env = "CONTIV_ROUTE_WITHDRAW_ON_STOP", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub route_withdraw_on_stop: bool,

    /// Let the renderer `route` make service addresses reachable from this node where it has no other route to them
    #[arg(long, env = "CONTIV_ROUTE_REACH_FROM_NODE", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub route_reach_from_node: bool,

    /// Routing table with these routes to services
    #[arg(long, env = "CONTIV_ROUTE_NODE_TABLE", value_name = "N")]
    pub route_node_table: u32,

    /// Let routes carry every service that needs no translation, unless its annotation says otherwise
    #[arg(long, env = "CONTIV_ROUTE_DIRECT", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub route_direct: bool,

    /// Routing table with the routes to backends
    #[arg(long, env = "CONTIV_ROUTE_DIRECT_TABLE", value_name = "N")]
    pub route_direct_table: u32,

    /// How these routes divide connections: `resilient` moves only those that must move, `plain` others too
    #[arg(long, env = "CONTIV_ROUTE_NEXTHOPS", value_name = "HOW")]
    pub route_nexthops: NexthopGrouping,

    /// How long a connection must be idle before a resilient group may move it to a backend that has too few, as in 2m
    #[arg(long, env = "CONTIV_ROUTE_NEXTHOP_IDLE", value_name = "TIME", value_parser = humantime::parse_duration)]
    #[serde(with = "text::duration")]
    pub route_nexthop_idle: Duration,

    /// Address and port of the debug HTTP
    #[arg(long, env = "CONTIV_LISTEN", value_name = "ADDR:PORT")]
    pub listen: SocketAddr,

    /// Address and port of /healthz and /livez for load balancers, as in 0.0.0.0:10256 [default: none]
    #[arg(long, env = "CONTIV_HEALTHZ_LISTEN", value_name = "ADDR:PORT")]
    #[serde(with = "text")]
    pub healthz_listen: OptionalAddress,

    /// Address and port of /metrics for scrapers on other machines, as in 0.0.0.0:10249 [default: none; with kube-proxy-metrics
    /// 127.0.0.1:10249, as kube-proxy]
    #[arg(long, env = "CONTIV_METRICS_LISTEN", value_name = "ADDR:PORT")]
    #[serde(with = "text")]
    pub metrics_listen: OptionalAddress,

    /// Certificate chain (PEM) for TLS at metrics-listen; read again when it changes [default: no TLS]
    #[arg(long, env = "CONTIV_METRICS_CERT_FILE", value_name = "FILE", value_parser = text::path())]
    pub metrics_cert_file: PathBuf,

    /// Private key (PEM) of that certificate
    #[arg(long, env = "CONTIV_METRICS_KEY_FILE", value_name = "FILE", value_parser = text::path())]
    pub metrics_key_file: PathBuf,

    /// File with bearer tokens, one a line, of which a scrape at metrics-listen needs one [default: none is needed]
    #[arg(long, env = "CONTIV_METRICS_TOKEN_FILE", value_name = "FILE", value_parser = text::path())]
    pub metrics_token_file: PathBuf,

    /// A scrape at metrics-listen needs a bearer token whose owner the API server of a `kube:` store lets get /metrics
    #[arg(long, env = "CONTIV_METRICS_TOKEN_REVIEW", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub metrics_token_review: bool,

    /// Have the metrics of kube-proxy under its own names (kubeproxy_…) too, so that dashboards and alerts for it keep working;
    /// and /healthz and /proxyMode beside them at metrics-listen
    #[arg(long, env = "CONTIV_KUBE_PROXY_METRICS", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub kube_proxy_metrics: bool,

    /// Folder for the state that survives a restart; one agent at a time
    #[arg(long, env = "CONTIV_STATE_DIR", value_name = "DIR")]
    pub state_dir: PathBuf,

    /// Format of the log lines on standard error
    #[arg(long, env = "CONTIV_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: LogFormat,

    /// What to log: error, warn, info, debug or trace; also by module, as in `info,contiv_store=debug`
    #[arg(long, env = "CONTIV_LOG_LEVEL", value_name = "LEVEL")]
    pub log_level: String,

    /// Addresses of this node [default: the first internal one of each family of the Node object]
    #[arg(
        long,
        env = "CONTIV_NODE_IPS",
        value_name = "ADDR,…",
        value_delimiter = ','
    )]
    pub node_ips: Vec<IpAddr>,

    /// Where node ports answer: `primary` (the addresses above), `all` of this node's interfaces, those in a range, or
    /// `cluster` (primary, and for this node and its pods the addresses of all other nodes); ranges of one family leave the
    /// other with all of its addresses
    #[arg(
        long,
        env = "CONTIV_NODE_PORT_ADDRESSES",
        value_name = "primary|all|cluster|RANGE,…",
        value_delimiter = ','
    )]
    #[serde(with = "text::list")]
    pub node_port_addresses: Vec<NodePortAddresses>,

    /// Let node ports answer on 127.0.0.1 too; turns on `net.ipv4.conf.all.route_localnet`
    #[arg(long, env = "CONTIV_NODE_PORTS_ON_LOOPBACK", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub node_ports_on_loopback: bool,

    /// Interfaces to the external network, as in eth0,bond* [default: those with an address of this node, and physical ones]
    #[arg(
        long,
        env = "CONTIV_EXTERNAL_INTERFACES",
        value_name = "NAME,…",
        value_delimiter = ','
    )]
    pub external_interfaces: Vec<InterfacePattern>,

    /// Where services answer packets that come in: at interfaces of attached `pods`, `external` ones (as above), and by name;
    /// empty for everywhere
    #[arg(
        long,
        env = "CONTIV_SERVICE_INTERFACES",
        value_name = "pods|external|NAME,…",
        value_delimiter = ','
    )]
    #[serde(with = "text::list")]
    pub service_interfaces: Vec<ServiceInterfaces>,

    /// How pods of this node are detected: `pod-cidrs`, `interfaces:cni0,veth*`, or `none`
    #[arg(long, env = "CONTIV_LOCAL_DETECT", value_name = "HOW")]
    #[serde(with = "text")]
    pub local_detect: LocalDetect,

    /// Masquerade every client of a cluster IP, including pods
    #[arg(long, env = "CONTIV_MASQUERADE_ALL", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub masquerade_all: bool,

    /// Masquerade what pods of this node send out of the cluster, as Contiv's `natExternalTraffic` and ip-masq-agent do
    #[arg(long, env = "CONTIV_MASQUERADE_EGRESS", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub masquerade_egress: bool,

    /// Destinations that `masquerade-egress` leaves out, besides pods and nodes of the cluster, and link-local addresses
    #[arg(
        long,
        env = "CONTIV_NON_MASQUERADE_CIDRS",
        value_name = "RANGE,…",
        value_delimiter = ','
    )]
    pub non_masquerade_cidrs: Vec<IpNetwork>,

    /// Address ranges of pods [default: those of the Node object]
    #[arg(
        long,
        env = "CONTIV_POD_CIDRS",
        value_name = "RANGE,…",
        value_delimiter = ','
    )]
    pub pod_cidrs: Vec<IpNetwork>,

    /// Ranges of cluster IPs; packets to unused ones are dropped [default: not known]
    #[arg(
        long,
        env = "CONTIV_SERVICE_CIDRS",
        value_name = "RANGE,…",
        value_delimiter = ','
    )]
    pub service_cidrs: Vec<IpNetwork>,

    /// Serve services with this value of the label `service.kubernetes.io/service-proxy-name` [default: those without it]
    #[arg(long, env = "CONTIV_SERVICE_PROXY_NAME", value_name = "NAME")]
    pub service_proxy_name: String,

    /// The zone this node is in [default: that of the Node object]
    #[arg(long, env = "CONTIV_ZONE", value_name = "NAME")]
    pub zone: String,

    /// Weight of a backend on this node, while one on another node has 1
    #[arg(long, env = "CONTIV_LOCAL_ENDPOINT_WEIGHT", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub local_endpoint_weight: u16,

    /// Let `externalTrafficPolicy: Local` restrict the cluster addresses too, as Contiv did
    // Not a flag without a value: that would be false when it is not given, and win over the file.
    #[arg(long, env = "CONTIV_CONTIV_LOCAL_POLICY", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub contiv_local_policy: bool,

    /// Let `loadBalancerSourceRanges` restrict the node ports of the service too
    #[arg(long, env = "CONTIV_SOURCE_RANGES_ON_NODE_PORTS", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub source_ranges_on_node_ports: bool,

    /// Hold deletions of more than this share of all services, endpoints or slices at once, in percent; 0 for never
    #[arg(long, env = "CONTIV_MASS_DELETION_PERCENT", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=100))]
    pub mass_deletion_percent: u8,

    /// How long such deletions are held unless they are confirmed, as in 30s or 5m
    #[arg(long, env = "CONTIV_MASS_DELETION_WAIT", value_name = "TIME", value_parser = humantime::parse_duration)]
    #[serde(with = "text::duration")]
    pub mass_deletion_wait: Duration,

    /// How many services, the most used ones, have metrics of their own; each scrape then reads the kernel's counters
    #[arg(long, env = "CONTIV_SERVICE_COUNTERS", value_name = "N")]
    pub service_counters: usize,

    /// What is done about TCP backends that do not answer, unless the service's annotation says otherwise: `off`, `observe`
    /// (recorded), `on` (they leave the choice)
    #[arg(long, env = "CONTIV_FAILOVER", value_name = "off|observe|on")]
    pub failover: FailoverMode,

    /// How long a backend may take to answer a SYN or a probe
    #[arg(long, env = "CONTIV_FAILOVER_ANSWER_WITHIN", value_name = "TIME", value_parser = humantime::parse_duration)]
    #[serde(with = "text::duration")]
    pub failover_answer_within: Duration,

    /// Prove the rules every few seconds by a connection to a service of the agent's own; a failure makes the node unhealthy
    #[arg(long, env = "CONTIV_SELF_CHECK", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub self_check: bool,

    /// How often the kernel is read back and compared with what services require, as in 10m; 0s for never
    #[arg(long, env = "CONTIV_VERIFY_INTERVAL", value_name = "TIME", value_parser = humantime::parse_duration)]
    #[serde(with = "text::duration")]
    pub verify_interval: Duration,

    /// Repair differences that verification finds; otherwise they are only reported
    #[arg(long, env = "CONTIV_VERIFY_HEAL", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub verify_heal: bool,

    /// How many events the history keeps
    #[arg(long, env = "CONTIV_HISTORY_EVENTS", value_name = "N")]
    pub history_events: usize,

    /// How long the history keeps an event, as in 90m or 24h
    #[arg(long, env = "CONTIV_HISTORY_AGE", value_name = "TIME", value_parser = humantime::parse_duration)]
    #[serde(with = "text::duration")]
    pub history_age: Duration,

    /// About how much memory the history uses, in bytes
    #[arg(long, env = "CONTIV_HISTORY_BYTES", value_name = "N")]
    pub history_bytes: usize,

    /// Send a trace of each change to this OpenTelemetry collector, as in `http://127.0.0.1:4318`; empty for no traces
    #[arg(long, env = "CONTIV_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: String,

    /// Send connections through services there too, as log records; of very many a sample
    #[arg(long, env = "CONTIV_OTLP_FLOWS", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub otlp_flows: bool,
}

/// How routes divide connections between next hops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NexthopGrouping {
    /// A connection moves only if its next hop goes, or when it is idle.
    Resilient,
    /// With each change some connections move that need not.
    Plain,
}

/// `metricsBindAddress` of kube-proxy by default.
const KUBE_PROXY_METRICS_ADDRESS: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10249);

impl Config {
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

    /// The address of the metrics for scrapers: `metrics-listen`, or else that of kube-proxy if its metrics are served.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        let of_kube_proxy = self
            .kube_proxy_metrics
            .then_some(KUBE_PROXY_METRICS_ADDRESS);
        let is_free = |address: &SocketAddr| {
            ![Some(self.listen), self.healthz_listen.0].contains(&Some(*address))
        };
        self.metrics_listen.0.or(of_kube_proxy.filter(is_free))
    }

    /// Whether `metrics-listen` is set. The settings for scrapes there do not apply to the address of kube-proxy, where its metrics
    /// are plain HTTP and for everybody on this machine.
    pub const fn has_own_metrics_address(&self) -> bool {
        self.metrics_listen.0.is_some()
    }

    /// The configuration of the service processor.
    pub fn processor(&self) -> ProcessorConfig {
        ProcessorConfig {
            local_endpoint_weight: self.local_endpoint_weight,
            node_ips: self.node_ips.iter().copied().collect(),
            pod_cidrs: self.pod_cidrs.iter().copied().collect(),
            service_cidrs: self.service_cidrs.iter().copied().collect(),
            node_port_addresses: self.node_port_addresses.iter().copied().collect(),
            node_ports_on_loopback: self.node_ports_on_loopback,
            external_interfaces: self.external_interfaces.iter().copied().collect(),
            service_interfaces: self.service_interfaces.iter().copied().collect(),
            local_detect: self.local_detect.clone(),
            masquerade_all: self.masquerade_all,
            masquerade_egress: self.masquerade_egress,
            non_masquerade_cidrs: self.non_masquerade_cidrs.iter().copied().collect(),
            service_proxy_name: (!self.service_proxy_name.is_empty())
                .then(|| self.service_proxy_name.as_str().into()),
            zone: (!self.zone.is_empty()).then(|| self.zone.as_str().into()),
            source_ranges_on_node_ports: self.source_ranges_on_node_ports,
            contiv_local_policy: self.contiv_local_policy,
            route_runs: self.renderers.contains(&RendererName::ROUTE),
            route_all: self.route_direct,
            failover: self.failover,
            node_name: NodeName::new(self.node_name.as_str()),
        }
    }

    /// The options of the renderer `route`.
    pub fn routes(&self) -> RouteOptions {
        RouteOptions {
            advertise: self.route_advertise.iter().copied().collect(),
            advertise_table: self.route_advertise_table,
            reach_from_node: self.route_reach_from_node,
            node_table: self.route_node_table,
            direct: DirectOptions {
                table: self.route_direct_table,
                grouping: match self.route_nexthops {
                    NexthopGrouping::Plain => Grouping::Plain,
                    NexthopGrouping::Resilient => Grouping::Resilient {
                        idle: self
                            .route_nexthop_idle
                            .as_secs()
                            .try_into()
                            .unwrap_or(u32::MAX),
                    },
                },
            },
        }
    }
}
