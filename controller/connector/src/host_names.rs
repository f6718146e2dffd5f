//! Looks up the addresses of instances that are registered by a host name.
//!
//! A name is looked up again when its time to live is over. A failure changes nothing: the addresses that were found before stay.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    net::IpAddr,
    sync::Arc,
};

use contiv_store::Backoff;
use futures::{StreamExt, stream};
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use crate::{
    registry::{FoundAddresses, HostLookup, RegistryError, address, backoff},
    sink::Sink,
};

/// How many names are looked up at once.
const CONCURRENT_LOOKUPS: usize = 16;

/// One host name.
struct Host {
    /// None until the first answer.
    addresses: Option<BTreeSet<IpAddr>>,
    next: Instant,
    backoff: Backoff,
}

/// Keeps the addresses of the host names in the catalogs of these registries up to date until it is aborted.
pub(crate) async fn keep_resolved(
    sink: Sink,
    registries: BTreeSet<String>,
    lookup: Arc<dyn HostLookup>,
) {
    let mut catalogs = sink.changes();
    let mut hosts = BTreeMap::<String, Host>::new();
    loop {
        catalogs.mark_unchanged();
        let names = sink.read(|all| {
            let of_registries = all
                .iter()
                .filter(|(registry, _)| registries.contains(*registry));
            let services = of_registries.flat_map(|(_, catalog)| catalog.values().flatten());
            let hosts = services.flat_map(|service| &service.hosts);
            hosts
                .map(|host| host.address.clone())
                .collect::<BTreeSet<_>>()
        });
        hosts.retain(|host, _| names.contains(host));
        let now = Instant::now();
        let is_due = |host: &String| hosts.get(host).is_none_or(|host| host.next <= now);
        let due: Vec<String> = names.into_iter().filter(is_due).collect();
        let lookups = due.into_iter().map(|host| {
            let lookup = Arc::clone(&lookup);
            async move {
                let answer = lookup.lookup(&host).await;
                (host, answer)
            }
        });
        let answers: Vec<_> = stream::iter(lookups)
            .buffer_unordered(CONCURRENT_LOOKUPS)
            .collect()
            .await;
        for (name, answer) in answers {
            let new = || Host {
                addresses: None,
                next: Instant::now(),
                backoff: backoff(),
            };
            hosts
                .entry(name.clone())
                .or_insert_with(new)
                .handle(&name, answer);
        }
        let known = hosts
            .iter()
            .filter_map(|(name, host)| Some((name.clone(), host.addresses.clone()?)));
        sink.set_hosts(known.collect());
        let next = hosts.values().map(|host| host.next).min();
        let timer = async {
            match next {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            changed = catalogs.changed() => if changed.is_err() { return },
            () = timer => {}
        }
    }
}

impl Host {
    fn handle(&mut self, name: &str, answer: Result<FoundAddresses, RegistryError>) {
        let pause = match answer {
            Ok((found, holds)) => {
                self.backoff.reset();
                let usable = found.iter().filter_map(|ip| address(&ip.to_string()).ok());
                self.addresses = Some(usable.collect());
                holds
            }
            Err(error) => {
                let is_first = self.backoff.failures() == 0;
                let pause = self.backoff.next(rand::random());
                if is_first {
                    warn!(host = name, %error, "a host name cannot be looked up; its addresses stay");
                }
                pause
            }
        };
        self.next = Instant::now() + pause;
    }
}
