//! The settings of a registry that is a Consul.

use std::{path::PathBuf, time::Duration};

use crate::registry::http::Certificates;

/// The settings of a registry that is a Consul.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsulOptions {
    /// Its address: `http://` or `https://`, host and port.
    pub url: String,
    /// File with the token, read for each request.
    pub token_file: Option<PathBuf>,
    /// For `https://`.
    pub certificates: Certificates,
    /// The datacenter to query; none for that of the server.
    pub datacenter: Option<String>,
    /// Only services with this tag on an instance are used; empty for all.
    pub tag: String,
    /// Services with this tag on an instance are left out; empty for none.
    pub exclude_tag: String,
    /// Whether an instance must pass all checks to be ready. Otherwise all are.
    pub passing_only: bool,
    /// How long a query waits for a change.
    pub wait: Duration,
    /// How many queries for instances may wait at once. Consul accepts 200 connections per client address
    /// (`http_max_conns_per_client`). If there are more services, their queries alternate.
    pub connections: usize,
}

impl ConsulOptions {
    /// The defaults, for a Consul at this URL.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.trim_end_matches('/').to_owned(),
            token_file: None,
            certificates: Certificates::default(),
            datacenter: None,
            tag: String::new(),
            exclude_tag: String::new(),
            passing_only: true,
            wait: Duration::from_secs(60),
            connections: 128,
        }
    }
}
