//! Validation of values that have the right form.

use std::{collections::BTreeSet, ops::RangeInclusive, time::Duration};

use contiv_store::url::without_password;

use super::{ConnectorConfig, ConsulConfig, DnsConfig, RegistryConfig};
use crate::{HostNames, cluster_address::check_range, name};

/// The maximum that Consul lets a query wait.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// The least is flomesh's quiet period: more often nothing is synced.
const SYNC_PERIODS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);

impl ConnectorConfig {
    /// The problems, a line each, beginning with the key.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        problems.extend(
            name::check(&self.namespace)
                .err()
                .map(|reason| format!("namespace: {reason}")),
        );
        let mut families = BTreeSet::new();
        for (i, range) in self.cluster_ip_ranges.iter().enumerate() {
            let key = format!("cluster-ip-ranges[{i}]");
            problems.extend(
                check_range(*range)
                    .err()
                    .map(|reason| format!("{key}: {reason}")),
            );
            if !families.insert(range.is_ipv4()) {
                problems.push(format!(
                    "{key}: {range} is the second of its family; name at most one of each"
                ));
            }
        }
        if !SYNC_PERIODS.contains(&self.sync_period) {
            problems.push("sync-period: it is from 1s to 1day".to_owned());
        }
        if self.registries.is_empty() {
            problems.push("registries: there is none; name at least one".to_owned());
        }
        let mut names = BTreeSet::new();
        for (i, registry) in self.registries.iter().enumerate() {
            let key = format!("registries[{i}]");
            problems.extend(
                registry
                    .problems()
                    .into_iter()
                    .map(|problem| format!("{key}{problem}")),
            );
            if !names.insert(&registry.name) {
                problems.push(format!(
                    "{key}.name: there is another registry {:?}; rename one",
                    registry.name
                ));
            }
        }
        problems
    }
}

impl RegistryConfig {
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        problems.extend(
            name::check(&self.name)
                .err()
                .map(|reason| format!(".name: {reason}")),
        );
        let kinds = [
            self.file.is_some(),
            self.consul.is_some(),
            self.dns.is_some(),
        ];
        if kinds.into_iter().filter(|is_there| *is_there).count() != 1 {
            problems.push(": give it one of file, consul and dns".to_owned());
        }
        for (key, part) in [("prefix", &self.prefix), ("suffix", &self.suffix)] {
            // As it will be used, next to a name.
            let around = format!("x{part}x");
            if name::check(&around).is_err() {
                problems.push(format!(
                    ".{key}: {part:?} holds what no name may hold; use a to z, 0 to 9 and -"
                ));
            }
        }
        if self.service_port == Some(0) {
            problems.push(".service-port: 0 is not a port".to_owned());
        }
        if let Some(file) = &self.file
            && file.file_name().is_none()
        {
            problems.push(format!(
                ".file: {:?} is not the path of a file",
                file.display()
            ));
        }
        if let Some(consul) = &self.consul {
            problems.extend(
                consul
                    .problems()
                    .into_iter()
                    .map(|problem| format!(".consul.{problem}")),
            );
        }
        if self.host_names == HostNames::Resolve && !cfg!(feature = "dns") {
            problems.push(
                ".host-names: this contiv was built without the cargo feature dns; take a build with it"
                    .to_owned(),
            );
        }
        if let Some(dns) = &self.dns {
            problems.extend(
                dns.problems()
                    .into_iter()
                    .map(|problem| format!(".dns{problem}")),
            );
        }
        problems
    }
}

impl DnsConfig {
    #[cfg(feature = "dns")]
    fn problems(&self) -> Vec<String> {
        let wrong = |(service, record): (&String, &String)| {
            let reason = crate::registry::dns::check_record(record).err()?;
            Some(format!(".services.{service}: {reason}"))
        };
        let mut problems: Vec<String> = self.services.iter().filter_map(wrong).collect();
        if self.services.is_empty() {
            problems.push(".services: there is none; name at least one".to_owned());
        }
        problems
    }

    #[cfg(not(feature = "dns"))]
    #[expect(clippy::unused_self, reason = "with the feature it is asked")]
    fn problems(&self) -> Vec<String> {
        vec![
            ": this contiv was built without the cargo feature dns; take a build with it"
                .to_owned(),
        ]
    }
}

impl ConsulConfig {
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        // It may contain a password or a token, and problems are logged.
        let shown = without_password(&self.url);
        let shown = shown.split(['?', '#']).next().unwrap_or_default();
        let has_user = self.url.contains('@');
        if has_user {
            problems.push(format!(
                "url: user and password have no place in {shown:?}; token-file names a file with a token"
            ));
        }
        let url = self.url.parse::<hyper::Uri>().ok().filter(|url| {
            matches!(url.scheme_str(), Some("http" | "https"))
                && url.host().is_some_and(|host| !host.is_empty())
                && matches!(url.path(), "" | "/")
                && url.query().is_none()
        });
        if url.is_none() && !has_user {
            problems.push(format!(
                "url: {shown:?} is not the address of a Consul; write one as in http://10.0.0.1:8500"
            ));
        }
        match (&self.cert_file, &self.key_file) {
            (Some(_), None) => {
                problems.push("cert-file: it is of no use without key-file".to_owned());
            }
            (None, Some(_)) => {
                problems.push("key-file: it is of no use without cert-file".to_owned());
            }
            _ => {}
        }
        if self
            .wait
            .is_some_and(|wait| wait < Duration::from_millis(1) || wait > MAX_WAIT)
        {
            problems.push("wait: Consul waits for 1 ms to 10 min".to_owned());
        }
        if self.connections == Some(0) {
            problems.push("connections: the least is 1".to_owned());
        }
        problems
    }
}
