//! What kube-proxy's rules on this node do with connections to services: in its mode nftables, and in its mode iptables if the program
//! iptables is that of nftables.
//!
//! The rules are evaluated, not recognised, so that other versions than those known are right too: a random choice is followed in each
//! way. By their names are found only the tables, the addresses that answer on node ports, the ranges of sources, and in mode iptables the
//! chains in which the addresses of services stand. Layouts: `pkg/proxy/nftables/proxier.go`, `pkg/proxy/iptables/proxier.go`.

mod conditions;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use contiv_model::{FlowEnd, Frontend, InterfaceName, NodeFacts, ServiceId, trace::Flow};
use nix::net::if_::if_nametoindex;

use self::conditions::Conditions;
use super::{
    PathError,
    ruleset::{Data, Ruleset, Verdict, has_legacy_chain, legacy_tables},
    stored_rules::{
        ProxyFrontend, ReadProgress, StoredElement, StoredRules, StoredSets, frontend_of,
    },
};
use crate::{
    linux::Linux,
    netlink::{NetlinkError, Socket},
    nftables::netlink::constants::{NFPROTO_IPV4, NFPROTO_IPV6, set},
};

/// The table of kube-proxy in mode nftables, in the families ip and ip6.
const TABLE: &str = "kube-proxy";
/// The set of the addresses that answer on node ports; without it all addresses of the node do.
const NODE_PORT_ADDRESSES: &str = "nodeport-ips";
/// The beginning of the chains that check sources.
const FIREWALL_CHAINS: &str = "firewall-";
/// The chain of mode nftables whose rules name the ranges of cluster IPs.
const CLUSTER_IPS_CHAIN: &str = "cluster-ips-check";
/// The beginnings of the chains in which it tells pods of this node from other clients of cluster IPs, in both modes.
const POD_CHAINS: [&str; 5] = ["services", "service-", "local-", "KUBE-SVC-", "KUBE-SVL-"];
/// The tables that kube-proxy uses in mode iptables.
const IPTABLES: [&str; 3] = ["nat", "filter", "mangle"];
/// The chains of mode iptables whose rules name addresses and ports of services.
const IPTABLES_SERVICES: [&str; 4] = [
    "KUBE-SERVICES",
    "KUBE-NODEPORTS",
    "KUBE-EXTERNAL-SERVICES",
    "KUBE-PROXY-FIREWALL",
];
/// The beginning of the chains of mode iptables.
const IPTABLES_CHAINS: &str = "KUBE-";
/// The beginning of the chains of single services, without which mode iptables serves none.
const IPTABLES_SERVICE_CHAINS: &str = "KUBE-SVC-";
/// The interface that has the addresses of services in mode ipvs.
const IPVS_INTERFACE: &str = "kube-ipvs0";
/// The chain whose presence tells mode iptables.
const IPTABLES_MAIN: &str = IPTABLES_SERVICES[0];
/// The beginning of the chains that check sources.
const IPTABLES_FIREWALL_CHAINS: &str = "KUBE-FW-";
/// How often everything is read again if it changes meanwhile.
const READ_ATTEMPTS: usize = 5;

/// The rules of kube-proxy on this node.
#[derive(Debug)]
pub struct KubeProxy {
    rules: StoredRules,
    mode: &'static str,
    frontends: BTreeMap<Frontend, ProxyFrontend>,
    /// The addresses that answer on node ports.
    node_port_addresses: BTreeSet<IpAddr>,
    /// The families in which all addresses of the node do: whether they are IPv4.
    open_families: BTreeSet<bool>,
    cluster: ProxyCluster,
    unread_tables: String,
}

/// What kube-proxy's rules say of the cluster beyond its services.
#[derive(Debug, Clone, Default)]
pub struct ProxyCluster {
    /// The ranges by which it knows pods of this node, with both ends included.
    pub pods: Vec<(IpAddr, IpAddr)>,
    /// An interface by which it knows that a packet is from a pod of this node.
    pub pod_interface: Option<InterfaceName>,
    /// The ranges of cluster IPs, with both ends included, if it drops what goes to unused ones.
    pub cluster_ips: Vec<(IpAddr, IpAddr)>,
}

impl KubeProxy {
    /// Reads the rules in the network namespace of the calling thread. Needs CAP_NET_ADMIN. Of many services that takes long: what cannot
    /// have changed since an `earlier` reading is taken from it, and `progress` is told how many sets are read, and of how many.
    ///
    /// # Errors
    /// When there are none; when the kernel refuses, or its rules change too often.
    pub fn read(earlier: Option<&Self>, progress: ReadProgress<'_>) -> Result<Self, PathError> {
        let mut socket = Socket::open(&Linux::shared()).map_err(|error| failed(&error))?;
        let mut known: Option<StoredSets> = None;
        let is_ip = |family| [NFPROTO_IPV4, NFPROTO_IPV6].contains(&family);
        let of_nftables = |family, name: &str| is_ip(family) && name == TABLE;
        let of_iptables = |family, name: &str| is_ip(family) && IPTABLES.contains(&name);
        if if_nametoindex(IPVS_INTERFACE).is_ok() {
            return Err(PathError(format!(
                "kube-proxy runs in its mode ipvs, or has run ({IPVS_INTERFACE} is there), which cannot be read: compare on a node where it \
                 runs in mode nftables or iptables"
            )));
        }
        let unread_tables = unread_tables()?;
        for _ in 0..READ_ATTEMPTS {
            let mut ruleset = Ruleset::read_tables(&mut socket, of_nftables, false)?;
            let is_iptables = ruleset.tables().next().is_none();
            let of_other_mode = Ruleset::read_tables(&mut socket, of_iptables, false)?;
            if !is_iptables && of_other_mode.has_chain_of(IPTABLES_SERVICE_CHAINS) {
                return Err(PathError(format!(
                    "kube-proxy's rules of both its mode nftables (table {TABLE}) and its mode iptables ({IPTABLES_SERVICE_CHAINS}…) are there: \
                     `kube-proxy --cleanup` removes those of an earlier mode"
                )));
            }
            if is_iptables {
                ruleset = of_other_mode;
                if ruleset.chains_named(IPTABLES_MAIN).next().is_none() {
                    return Err(absence(&unread_tables));
                }
                // In the same tables are rules of other programs, which stay after a switch-over.
                ruleset.keep_chains(IPTABLES_CHAINS);
            }
            let none = StoredSets::default();
            let before = earlier.map_or(&none, |earlier| &earlier.rules.sets);
            let before = known.as_ref().unwrap_or(before);
            let sets = StoredSets::read(socket.kernel(), &ruleset, before, progress);
            // A set may be gone before it is read.
            let generation = socket.generation().map_err(|error| failed(&error))?;
            if generation == ruleset.generation {
                let sets = sets.map_err(|error| failed(&error))?;
                return Ok(Self {
                    unread_tables,
                    ..Self::new(ruleset, sets, is_iptables)
                });
            }
            known = sets.ok().or(known);
        }
        Err(PathError(
            "kube-proxy's rules change constantly; try again".to_owned(),
        ))
    }

    fn new(ruleset: Ruleset, sets: StoredSets, is_iptables: bool) -> Self {
        let mut proxy = Self {
            rules: StoredRules::default(),
            mode: if is_iptables { "iptables" } else { "nftables" },
            frontends: BTreeMap::new(),
            node_port_addresses: BTreeSet::new(),
            open_families: BTreeSet::new(),
            cluster: ProxyCluster::new(&ruleset, &sets),
            unread_tables: String::new(),
        };
        if is_iptables {
            proxy.add_chains(&ruleset, &sets);
        } else {
            proxy.add_maps(&ruleset, &sets);
        }
        let rules = StoredRules {
            ruleset,
            sets,
            keeps_in_maps: false,
        };
        Self { rules, ..proxy }
    }

    /// Its mode: "nftables" or "iptables".
    pub const fn mode(&self) -> &'static str {
        self.mode
    }

    /// The frontends that its rules name.
    pub const fn frontends(&self) -> &BTreeMap<Frontend, ProxyFrontend> {
        &self.frontends
    }

    /// The tables of iptables-legacy of which it is unknown whether kube-proxy's rules are among theirs; empty if there are none.
    pub fn unread_tables(&self) -> &str {
        &self.unread_tables
    }

    /// What its rules say of the cluster.
    pub const fn cluster(&self) -> &ProxyCluster {
        &self.cluster
    }

    /// The addresses that may answer on node ports.
    pub fn node_port_addresses(&self, node: &NodeFacts) -> BTreeSet<IpAddr> {
        let is_open = |own: &&IpAddr| {
            let is_link_local = match own {
                IpAddr::V4(own) => own.is_link_local(),
                IpAddr::V6(own) => own.is_unicast_link_local(),
            };
            self.open_families.contains(&own.is_ipv4()) && !own.is_loopback() && !is_link_local
        };
        let own = node.local_ips.iter().chain(&node.node_ips).filter(is_open);
        let mut all: BTreeSet<IpAddr> = own.chain(&self.node_port_addresses).copied().collect();
        if self.mode == "iptables" && self.open_families.contains(&true) {
            all.insert(Ipv4Addr::LOCALHOST.into());
        }
        all
    }

    /// How a new connection ends by the rules, for a client whose earlier connections are forgotten. Several ends depend on chance.
    ///
    /// # Errors
    /// When rules have a condition that cannot be evaluated.
    pub fn ends(&self, flow: &Flow, node: &NodeFacts) -> Result<BTreeSet<FlowEnd>, PathError> {
        self.rules.ends(flow, node)
    }

    /// The frontends of mode nftables: the keys of maps to verdicts.
    fn add_maps(&mut self, ruleset: &Ruleset, sets: &StoredSets) {
        for (family, _) in ruleset.tables() {
            self.open_families.insert(family == NFPROTO_IPV4);
        }
        for (set_ref, shape) in ruleset.sets() {
            let Some(stored) = sets.get(set_ref) else {
                continue;
            };
            if set_ref.set == NODE_PORT_ADDRESSES {
                let listed = stored.addresses().into_iter().map(|(address, _)| address);
                self.node_port_addresses.extend(listed);
                self.open_families.remove(&(set_ref.family == NFPROTO_IPV4));
            }
            if !shape.has_verdicts || shape.flags & set::FLAG_ANONYMOUS != 0 {
                continue;
            }
            for (key, element) in stored.elements() {
                let Some(frontend) = frontend_of(key) else {
                    continue;
                };
                let known = self.frontends.entry(frontend).or_default();
                let chain = chain_of(element);
                let service = chain.and_then(service_of_chain);
                let service = service.or_else(|| service_of_comment(&element.comment));
                known.service = known.service.take().or(service);
                let firewall = chain.filter(|chain| chain.starts_with(FIREWALL_CHAINS));
                let chains = firewall
                    .into_iter()
                    .flat_map(|name| ruleset.chains_named(name));
                for (_, chain) in chains.filter(|(family, _)| *family == set_ref.family) {
                    add_sources(known, ruleset, sets, chain);
                }
            }
        }
    }

    /// The frontends of mode iptables: what rules of its chains compare.
    fn add_chains(&mut self, ruleset: &Ruleset, sets: &StoredSets) {
        for name in IPTABLES_SERVICES {
            for (family, chain) in ruleset.chains_named(name) {
                self.open_families.insert(family == NFPROTO_IPV4);
                for rule in ruleset.rules(chain) {
                    let conditions = Conditions::of(ruleset, sets, chain, rule);
                    let (Some(protocol), Some(port)) = (conditions.protocol, conditions.port)
                    else {
                        continue;
                    };
                    let frontend = match conditions.destination {
                        Some(address) => Frontend::Address {
                            address,
                            protocol,
                            port,
                        },
                        None => Frontend::NodePort { protocol, port },
                    };
                    let known = self.frontends.entry(frontend).or_default();
                    let service = service_of_comment(&ruleset.comment(rule));
                    known.service = known.service.take().or(service);
                    let firewall = conditions.chain;
                    let firewall =
                        firewall.filter(|chain| chain.starts_with(IPTABLES_FIREWALL_CHAINS));
                    let chains = firewall.iter().flat_map(|name| ruleset.chains_named(name));
                    for (_, chain) in chains.filter(|(of_chain, _)| *of_chain == family) {
                        add_sources(known, ruleset, sets, chain);
                    }
                }
            }
        }
    }
}

impl ProxyCluster {
    fn new(ruleset: &Ruleset, sets: &StoredSets) -> Self {
        let mut found = Self::default();
        let mut known_families = BTreeSet::new();
        for (family, name, chain) in ruleset.chains() {
            let conditions = || {
                let rules = ruleset.rules(chain).iter();
                rules.map(|rule| Conditions::of(ruleset, sets, chain, rule))
            };
            if name == CLUSTER_IPS_CHAIN {
                // Single ones are services.
                let ranges = conditions().flat_map(|it| it.destinations);
                found
                    .cluster_ips
                    .extend(ranges.filter(|(low, high)| low != high));
            }
            if known_families.contains(&family)
                || !POD_CHAINS.iter().any(|prefix| name.starts_with(prefix))
            {
                continue;
            }
            for one in conditions() {
                if !one.other_sources.is_empty() || one.other_input.is_some() {
                    known_families.insert(family);
                }
                found.pods.extend(one.other_sources);
                let input = one.other_input.map(InterfaceName::new);
                found.pod_interface = found.pod_interface.or(input);
            }
        }
        found
    }
}

/// Adds the sources that the rules of a chain compare.
fn add_sources(known: &mut ProxyFrontend, ruleset: &Ruleset, sets: &StoredSets, chain: usize) {
    for rule in ruleset.rules(chain) {
        let conditions = Conditions::of(ruleset, sets, chain, rule);
        known.source_ranges.extend(conditions.sources);
    }
}

fn failed(error: &NetlinkError) -> PathError {
    PathError(error.with_advice("read the tables").to_string())
}

/// The tables of iptables-legacy whose chains are unknown.
///
/// # Errors
/// When a table has kube-proxy's chains.
fn unread_tables() -> Result<String, PathError> {
    let mut unread = Vec::new();
    for (family, names) in legacy_tables() {
        match has_legacy_chain(family, IPTABLES_SERVICE_CHAINS) {
            Some(false) => {}
            None => unread.push(format!("{family} {names}")),
            Some(true) => {
                return Err(PathError(format!(
                    "kube-proxy's rules ({IPTABLES_SERVICE_CHAINS}…) are in the tables {family} {names} of iptables-legacy, which cannot be \
                     evaluated: `kube-proxy --cleanup` removes those of an earlier mode; else compare on a node where it runs in mode nftables, \
                     or with an iptables of nftables"
                )));
            }
        }
    }
    Ok(unread.join(", "))
}

/// Says what was looked for, and what may be there.
fn absence(unread_tables: &str) -> PathError {
    let unread = if unread_tables.is_empty() {
        String::new()
    } else {
        format!(
            ". The tables {unread_tables} of iptables-legacy cannot be read: if kube-proxy's are among them, compare on a node where it runs \
             in mode nftables, or with an iptables of nftables"
        )
    };
    PathError(format!(
        "kube-proxy has no rules on this node: there is neither a table ip kube-proxy nor ip6 kube-proxy (its mode nftables), nor a \
         chain {IPTABLES_MAIN} (its mode iptables){unread}"
    ))
}

fn chain_of(element: &StoredElement) -> Option<&str> {
    match &element.element.data {
        Data::Verdict(Verdict::Goto(chain) | Verdict::Jump(chain)) => Some(chain),
        _ => None,
    }
}

/// The service in the name of a chain, as in "service-ULMVA6XW-ns1/svc1/tcp/p80".
fn service_of_chain(chain: &str) -> Option<ServiceId> {
    let (_, rest) = chain.split_once('-')?;
    let (_, name) = rest.split_once('-')?;
    let mut parts = name.split('/');
    Some(ServiceId::new(parts.next()?, parts.next()?))
}

/// The service in a comment, as in "ns1/svc1:p80 cluster IP", or "ns1/svc1".
fn service_of_comment(comment: &str) -> Option<ServiceId> {
    let word = comment.split_whitespace().next()?;
    let name = word.split(':').next()?;
    let (namespace, name) = name.split_once('/')?;
    let is_name = !namespace.is_empty() && !name.is_empty();
    is_name.then(|| ServiceId::new(namespace, name))
}
