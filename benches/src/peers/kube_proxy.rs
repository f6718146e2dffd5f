//! kube-proxy's nftables layouts as text for `nft -f`: that of 1.35, which earlier versions have with small differences, and that
//! from 1.36. They are for services with a cluster IP, one TCP or UDP port and backends on other nodes. The range of pods is
//! configured: only clients outside it are masqueraded.
//!
//! Source: `pkg/proxy/nftables/proxier.go`. The rules are those that `proxier_test.go` of 1.35 expects, and those of a running 1.36.

use std::{
    fmt::Write as _,
    net::{Ipv4Addr, SocketAddrV4},
};

use contiv_tests::lab::{Family, ranges};

use super::size::{ALL_COMPLETE, SERVICE_RANGE};

/// A version of the layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// A chain for each endpoint, and one for each service with an anonymous verdict map.
    UpTo135,
    /// A chain for each service with an anonymous map of endpoints.
    From136,
}

/// A service as the layouts need it.
#[derive(Debug, Clone)]
pub(super) struct Service {
    pub(super) number: usize,
    pub(super) address: Ipv4Addr,
    pub(super) endpoints: Vec<SocketAddrV4>,
}

/// The protocol and port of every service.
#[derive(Debug, Clone, Copy)]
pub(super) struct Port {
    pub(super) protocol: &'static str,
    pub(super) port: u16,
}

/// The part that does not depend on services, in a table TABLE: base chains, sets, maps, and jumps. `OWN_CHAINS` are those
/// that differ between the layouts.
const BASE: &str = "\
table TABLE {
    set cluster-ips { type ipv4_addr; }
    set nodeport-ips { type ipv4_addr; }
    map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
    map service-nodeports { type inet_proto . inet_service : verdict; }
    map no-endpoint-services { type ipv4_addr . inet_proto . inet_service : verdict; }
    map no-endpoint-nodeports { type inet_proto . inet_service : verdict; }
    map firewall-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
OWN_CHAINS
    chain reject-chain { reject; }
    chain firewall-check { ip daddr . meta l4proto . th dport vmap @firewall-ips; }
    chain service-endpoints-check { ip daddr . meta l4proto . th dport vmap @no-endpoint-services; }
    chain nodeport-endpoints-check {
        ip daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports
    }
    chain cluster-ips-check {
        ip daddr @cluster-ips reject
        ip daddr { SERVICES } drop
    }
    chain filter-prerouting-pre-dnat {
        type filter hook prerouting priority -110; ct state new jump firewall-check
    }
    chain filter-output-pre-dnat { type filter hook output priority -110; ct state new jump firewall-check; }
    chain filter-input {
        type filter hook input priority 0
        ct state new jump nodeport-endpoints-check
        ct state new jump service-endpoints-check
    }
    chain filter-forward {
        type filter hook forward priority 0
        ct state new jump service-endpoints-check
        ct state new jump cluster-ips-check
    }
    chain filter-output {
        type filter hook output priority 0
        ct state new jump service-endpoints-check
        ct state new jump cluster-ips-check
    }
    chain nat-prerouting { type nat hook prerouting priority -100; jump services; }
    chain nat-output { type nat hook output priority -100; jump services; }
    chain nat-postrouting { type nat hook postrouting priority 100; jump masquerading; }
}
";

/// The chains of the layout up to 1.35: the chain of each service marks clients outside the range of pods, and that of each endpoint
/// marks the endpoint itself.
const OWN_UP_TO_135: &str = "\
    chain mark-for-masquerade { meta mark set meta mark or 0x4000; }
    chain masquerading {
        meta mark & 0x4000 == 0 return
        meta mark set meta mark xor 0x4000
        masquerade fully-random
    }
    chain services {
        ip daddr . meta l4proto . th dport vmap @service-ips
        ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
    }";

/// Those from 1.36: one rule marks clients outside the range of pods, and a set has the endpoints of this node. It is empty, since all
/// backends are on other nodes.
const OWN_FROM_136: &str = "\
    set hairpin-connections { type ipv4_addr . ipv4_addr . inet_proto . inet_service; }
    chain masquerading {
        meta mark & 0x4000 != 0 meta mark set meta mark xor 0x4000 masquerade fully-random
        ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random
    }
    chain services {
        ip daddr @cluster-ips ip saddr != PODS meta mark set meta mark or 0x4000
        ip daddr . meta l4proto . th dport vmap @service-ips
        ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
    }";

/// The services that are loaded together where the time of loading is not measured.
const SERVICES_OF_PIECE: usize = 5000;

impl Layout {
    /// Its name in figures.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::UpTo135 => "kube-proxy 1.35",
            Self::From136 => "kube-proxy 1.36",
        }
    }

    /// The family and name of its table; other than kube-proxy's, so that both can exist.
    pub(super) const fn table(self) -> &'static str {
        match self {
            Self::UpTo135 => "ip kube-proxy-135",
            Self::From136 => "ip kube-proxy-136",
        }
    }

    /// The whole table, for an empty kernel: texts to be loaded one after the other. Up to [`ALL_COMPLETE`] services it is one
    /// text, as kube-proxy writes it. Loading takes time quadratic in the chains of a text, so a larger table is several.
    pub(super) fn everything(
        self,
        port: Port,
        services: &[Service],
    ) -> impl Iterator<Item = String> {
        let of_piece = move |(number, services): (usize, &[Service])| {
            let base = if number == 0 {
                self.base()
            } else {
                String::new()
            };
            base + &self.services(port, services)
        };
        let piece_len = if services.len() <= ALL_COMPLETE {
            ALL_COMPLETE
        } else {
            SERVICES_OF_PIECE
        };
        services.chunks(piece_len).enumerate().map(of_piece)
    }

    /// [`BASE`] with its placeholders replaced. The first one brings others with it.
    fn base(self) -> String {
        let own = match self {
            Self::UpTo135 => OWN_UP_TO_135,
            Self::From136 => OWN_FROM_136,
        };
        let words = [
            ("OWN_CHAINS", own),
            ("TABLE", self.table()),
            ("PODS", &pods()),
            ("SERVICES", SERVICE_RANGE),
        ];
        words
            .into_iter()
            .fold(BASE.to_owned(), |text, (word, value)| {
                text.replace(word, value)
            })
    }

    fn services(self, port: Port, services: &[Service]) -> String {
        let table = self.table();
        let mut text = String::new();
        for service in services {
            self.chains(&mut text, port, service);
        }
        for Service {
            number, address, ..
        } in services
        {
            let Port { protocol, port } = port;
            line(
                &mut text,
                format_args!("add element {table} cluster-ips {{ {address} }}"),
            );
            line(
                &mut text,
                format_args!(
                    "add element {table} service-ips {{ {address} . {protocol} . {port} : goto {} }}",
                    service_chain(*number)
                ),
            );
        }
        text
    }

    /// A change of the endpoints of a service: kube-proxy's partial sync, without the listing before it. It empties the chains of
    /// removed endpoints, and deletes them with a later change.
    pub(super) fn change(self, port: Port, before: &Service, after: &Service) -> String {
        let mut text = String::new();
        self.chains(&mut text, port, after);
        if self == Self::UpTo135 {
            for endpoint in before
                .endpoints
                .iter()
                .filter(|endpoint| !after.endpoints.contains(endpoint))
            {
                let chain = endpoint_chain(before.number, *endpoint);
                line(
                    &mut text,
                    format_args!("flush chain {} {chain}", self.table()),
                );
            }
        }
        text
    }

    fn chains(self, text: &mut String, Port { protocol, .. }: Port, service: &Service) {
        let (table, chain) = (self.table(), service_chain(service.number));
        if self == Self::UpTo135 {
            for endpoint in &service.endpoints {
                let name = endpoint_chain(service.number, *endpoint);
                line(
                    text,
                    format_args!("add chain {table} {name}\nflush chain {table} {name}"),
                );
                let address = endpoint.ip();
                line(
                    text,
                    format_args!(
                        "add rule {table} {name} ip saddr {address} jump mark-for-masquerade"
                    ),
                );
                line(
                    text,
                    format_args!(
                        "add rule {table} {name} meta l4proto {protocol} dnat to {endpoint}"
                    ),
                );
            }
        }
        line(
            text,
            format_args!("add chain {table} {chain}\nflush chain {table} {chain}"),
        );
        if self == Self::UpTo135 {
            let (address, pods) = (service.address, pods());
            let mark =
                format_args!("ip daddr {address} ip saddr != {pods} jump mark-for-masquerade");
            line(text, format_args!("add rule {table} {chain} {mark}"));
        }
        let count = service.endpoints.len();
        let of_slot = |(slot, endpoint): (usize, &SocketAddrV4)| match self {
            Self::UpTo135 => format!(
                "{slot} : goto {}",
                endpoint_chain(service.number, *endpoint)
            ),
            Self::From136 => format!("{slot} : {} . {}", endpoint.ip(), endpoint.port()),
        };
        let slots = service
            .endpoints
            .iter()
            .enumerate()
            .map(of_slot)
            .collect::<Vec<_>>()
            .join(", ");
        let rule = match (self, service.endpoints.as_slice()) {
            // Without an anonymous map, as 1.37 writes it, which is the only way to load tens of thousands within minutes.
            (Self::UpTo135, [only]) => format!("goto {}", endpoint_chain(service.number, *only)),
            (Self::From136, [only]) => format!("meta l4proto {protocol} dnat to {only}"),
            (Self::UpTo135, _) => format!("numgen random mod {count} vmap {{ {slots} }}"),
            (Self::From136, _) => {
                format!(
                    "meta l4proto {protocol} dnat ip to numgen random mod {count} map {{ {slots} }}"
                )
            }
        };
        line(text, format_args!("add rule {table} {chain} {rule}"));
    }
}

/// The range of pods, whose connections are not masqueraded.
fn pods() -> String {
    ranges::PODS.cidr(Family::V4)
}

/// Named as kube-proxy does, with a number for the hash.
fn service_chain(number: usize) -> String {
    format!("service-{number:08X}-default/service-{number:06}/p/http")
}

fn endpoint_chain(service: usize, endpoint: SocketAddrV4) -> String {
    let (address, port) = (endpoint.ip(), endpoint.port());
    format!("endpoint-{service:08X}-default/service-{service:06}/p/http__{address}/{port}")
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{content}");
}
