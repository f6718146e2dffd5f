//! SRV records of DNS, queried again when their time to live is over.
//!
//! A service is one name such as `_http._tcp.web.example.org`; its instances are the addresses of the targets with the lowest
//! priority (RFC 2782: clients use the others only when those cannot be reached). If a server answers that there is no such
//! name, or no record, the service has no instances. Any other failure changes nothing.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use hickory_resolver::{
    Resolver, TokioResolver,
    config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts},
    net::{DnsError, NetError, NoRecords, runtime::TokioRuntimeProvider},
    proto::{
        ProtoError,
        op::ResponseCode,
        rr::{Name, RData, RecordType, rdata::SRV},
    },
};
use thiserror::Error;
use tokio::time::sleep;

use super::{FoundAddresses, HostLookup, Publisher, Registry, RegistryError, address, backoff};
use crate::catalog::{Instance, Protocol, SourceService};

/// The least interval between two queries of a name.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum interval, also for a longer time to live.
const MAX_INTERVAL: Duration = Duration::from_secs(3600);

/// How soon a name without records is queried again.
const MAX_NEGATIVE_TTL: Duration = Duration::from_secs(30);

/// The SRV records by the name of their service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DnsOptions {
    /// The names of services, and those of their SRV records.
    pub services: BTreeMap<String, String>,
    /// The servers to ask; none for those of `/etc/resolv.conf`.
    pub servers: Vec<SocketAddr>,
}

/// A registry that is a DNS.
#[derive(Debug, Clone)]
pub struct Dns {
    options: DnsOptions,
}

/// The records of a name, and how long they are valid.
struct Records<T> {
    records: T,
    valid_for: Duration,
}

impl Dns {
    /// A registry with these options.
    pub const fn new(options: DnsOptions) -> Self {
        Self { options }
    }

    async fn run(&self, publisher: &Publisher) -> RegistryError {
        let resolver = match resolver(&self.options.servers) {
            Ok(resolver) => resolver,
            Err(error) => return RegistryError::new("/etc/resolv.conf", error),
        };
        publisher.announce(
            self.options
                .services
                .keys()
                .map(|name| (name.clone(), None))
                .collect(),
        );
        let failing = AtomicUsize::new(0);
        let all = self.options.services.len();
        let lookups = self.options.services.iter().map(|(name, record)| {
            let (resolver, failing) = (&resolver, &failing);
            async move {
                let mut backoff = backoff();
                loop {
                    let wait = match lookup_service(resolver, record).await {
                        Ok((service, valid_for)) => {
                            if backoff.failures() > 0 {
                                failing.fetch_sub(1, Ordering::Relaxed);
                            }
                            publisher.publish_service(name, service);
                            backoff.reset();
                            valid_for
                        }
                        Err(error) => {
                            let is_first = backoff.failures() == 0;
                            if is_first {
                                failing.fetch_add(1, Ordering::Relaxed);
                            }
                            if failing.load(Ordering::Relaxed) == all {
                                publisher.failed(&error);
                            } else if is_first {
                                publisher.partly_failed(&error);
                            }
                            backoff.next(rand::random())
                        }
                    };
                    sleep(wait).await;
                }
            }
        });
        join_all(lookups).await;
        RegistryError::new("DNS", "no service is configured")
    }
}

/// A resolver with these servers; without any, those of `/etc/resolv.conf`.
fn resolver(servers: &[SocketAddr]) -> Result<TokioResolver, NetError> {
    let mut builder = if servers.is_empty() {
        Resolver::builder_tokio()?
    } else {
        let servers = servers.iter().map(|server| {
            let connections =
                [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
                    connection.port = server.port();
                    connection
                });
            NameServerConfig::new(server.ip(), true, connections.into())
        });
        let config = ResolverConfig::from_parts(None, Vec::new(), servers.collect());
        Resolver::builder_with_config(config, TokioRuntimeProvider::default())
    };
    let options: &mut ResolverOpts = builder.options_mut();
    // No cache: validity is handled here.
    options.cache_size = 0;
    builder.build()
}

/// Looks up host names by DNS: their A and AAAA records.
#[derive(Debug, Clone)]
pub struct DnsHosts {
    servers: Vec<SocketAddr>,
}

impl DnsHosts {
    /// With these servers; without any, those of `/etc/resolv.conf` as it is then.
    pub const fn new(servers: Vec<SocketAddr>) -> Self {
        Self { servers }
    }
}

impl HostLookup for DnsHosts {
    fn lookup<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<FoundAddresses, RegistryError>> {
        async move {
            let failed = |error: NetError| RegistryError::new("/etc/resolv.conf", error);
            let resolver = resolver(&self.servers).map_err(failed)?;
            let name = full_name(host).map_err(|reason| RegistryError::new(host, reason))?;
            let Records { records, valid_for } = addresses(&resolver, &name).await?;
            Ok((records, valid_for.clamp(MIN_INTERVAL, MAX_INTERVAL)))
        }
        .boxed()
    }
}

impl Registry for Dns {
    fn watch<'a>(&'a self, publisher: &'a Publisher) -> BoxFuture<'a, RegistryError> {
        self.run(publisher).boxed()
    }
}

/// The service of a name, and how long it is valid.
async fn lookup_service(
    resolver: &TokioResolver,
    record: &str,
) -> Result<(SourceService, Duration), RegistryError> {
    let name = full_name(record).map_err(|reason| RegistryError::new(record, reason))?;
    let found = lookup(resolver, &name, RecordType::SRV).await?;
    let records: Vec<&SRV> = found
        .records
        .iter()
        .filter_map(|data| match data {
            RData::SRV(srv) => Some(srv),
            _ => None,
        })
        .collect();
    let best = records.iter().map(|srv| srv.priority).min();
    // The root as target means that the service is not available there.
    let used = records
        .into_iter()
        .filter(|srv| Some(srv.priority) == best && !srv.target.is_root());
    let targets =
        join_all(used.map(|srv| async move { (srv.port, addresses(resolver, &srv.target).await) }))
            .await;
    let mut service = SourceService::default();
    let mut valid_for = found.valid_for;
    for (port, addresses) in targets {
        // A partial answer is unusable: the other targets would get all the traffic.
        let addresses = addresses?;
        valid_for = valid_for.min(addresses.valid_for);
        for ip in addresses.records {
            match address(&ip.to_string()) {
                Ok(address) if port > 0 => drop(service.instances.insert(Instance {
                    protocol: protocol(record),
                    ..Instance::new(address, port)
                })),
                Ok(address) => drop(
                    service
                        .unusable
                        .insert(format!("{record}: {address}: 0 is not a port")),
                ),
                Err(reason) => drop(service.unusable.insert(format!("{record}: {reason}"))),
            }
        }
    }
    Ok((service, valid_for.clamp(MIN_INTERVAL, MAX_INTERVAL)))
}

async fn addresses(
    resolver: &TokioResolver,
    target: &Name,
) -> Result<Records<Vec<IpAddr>>, RegistryError> {
    let v4 = lookup(resolver, target, RecordType::A);
    let v6 = lookup(resolver, target, RecordType::AAAA);
    let (v4, v6) = tokio::try_join!(v4, v6)?;
    let records: Vec<IpAddr> = v4
        .records
        .iter()
        .chain(&v6.records)
        .filter_map(RData::ip_addr)
        .collect();
    // A missing family must not shorten the interval of the other one.
    let present = [&v4, &v6]
        .into_iter()
        .filter(|known| !known.records.is_empty())
        .map(|known| known.valid_for);
    Ok(Records {
        records,
        valid_for: present.min().unwrap_or(MAX_NEGATIVE_TTL),
    })
}

/// The records of a name; none if there is no such name, or no such record.
async fn lookup(
    resolver: &TokioResolver,
    name: &Name,
    record_type: RecordType,
) -> Result<Records<Vec<RData>>, RegistryError> {
    match resolver.lookup(name.clone(), record_type).await {
        Ok(found) => {
            let answers = found.answers();
            let ttl = answers
                .iter()
                .map(|record| record.ttl)
                .min()
                .unwrap_or_default();
            Ok(Records {
                records: answers.iter().map(|record| record.data.clone()).collect(),
                valid_for: Duration::from_secs(ttl.into()),
            })
        }
        Err(NetError::Dns(DnsError::NoRecordsFound(NoRecords {
            response_code: ResponseCode::NXDomain | ResponseCode::NoError,
            negative_ttl,
            ..
        }))) => {
            let valid_for =
                negative_ttl.map_or(MAX_NEGATIVE_TTL, |ttl| Duration::from_secs(ttl.into()));
            Ok(Records {
                records: Vec::new(),
                valid_for: valid_for.min(MAX_NEGATIVE_TTL),
            })
        }
        Err(error) => Err(RegistryError::new(format!("{record_type} {name}"), error)),
    }
}

/// The name as written, without this machine's search domains.
fn full_name(name: &str) -> Result<Name, ProtoError> {
    let mut name = Name::from_utf8(name)?;
    name.set_fqdn(true);
    Ok(name)
}

/// The protocol in the second label, as in `_dns._udp.example.org`.
fn protocol(record: &str) -> Protocol {
    match record.split('.').nth(1) {
        Some("_udp") => Protocol::Udp,
        Some("_sctp") => Protocol::Sctp,
        _ => Protocol::Tcp,
    }
}

/// Why a text is not the name of SRV records.
#[derive(Debug, Error)]
pub enum RecordError {
    /// It is no name.
    #[error(transparent)]
    Name(#[from] ProtoError),
    /// Its first labels are not those of a service and of a protocol.
    #[error("{0:?} is not the name of SRV records; write one as in _http._tcp.web.example.org")]
    Labels(String),
}

/// Validates the name of SRV records.
///
/// # Errors
/// See [`RecordError`].
pub fn check_record(record: &str) -> Result<(), RecordError> {
    full_name(record)?;
    let mut labels = record.split('.');
    let is_service = labels
        .next()
        .is_some_and(|label| label.len() > 1 && label.starts_with('_'));
    let is_known = matches!(labels.next(), Some("_tcp" | "_udp" | "_sctp"));
    if is_service && is_known && labels.next().is_some_and(|label| !label.is_empty()) {
        return Ok(());
    }
    Err(RecordError::Labels(record.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_named_by_service_and_protocol() {
        assert!(check_record("_dns._udp.example.org").is_ok());
        for wrong in [
            "",
            "web.example.org",
            "_http.example.org",
            "_http._quic.example.org",
            "_http._tcp",
            "_._tcp.a",
        ] {
            assert!(check_record(wrong).is_err(), "{wrong}");
        }
        assert_eq!(protocol("_dns._udp.example.org"), Protocol::Udp);
        assert_eq!(protocol("_http._tcp.example.org"), Protocol::Tcp);
    }
}
