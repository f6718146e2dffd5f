//! What the agent's table in the kernel does with connections to services, whatever version has written it.
//!
//! The rules are evaluated as those of another program are: so nothing but the keys of its sets needs to be known of a layout.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use contiv_model::{FlowEnd, Frontend, NodeFacts, VerdictKind, trace::Flow};

use super::{
    PathError,
    ruleset::{Ruleset, SetRef},
    stored_rules::{ProxyFrontend, ReadProgress, StoredRules, StoredSets, address, frontend_of},
};
use crate::{
    linux::Linux,
    netlink::{NetlinkError, Socket},
    nftables::{
        TABLE,
        netlink::constants::{NFPROTO_INET, set},
    },
};

/// How often everything is read again if it changes meanwhile.
const READ_ATTEMPTS: usize = 5;
/// The lengths of keys that are frontends: address, protocol and port, with an address of IPv4 or IPv6.
const FRONTEND_KEYS: [usize; 2] = [12, 24];
/// The lengths of addresses in keys.
const ADDRESS_BYTES: [usize; 2] = [4, 16];
/// The beginning of the sets of frontends, or of their addresses, that routes carry.
const ROUTED: &str = "routed";
/// The beginning of the sets of addresses on which node ports answer.
const NODE_ADDRESSES: &str = "node-ips";

/// The agent's table, as it is in the kernel.
#[derive(Debug)]
pub struct ProgrammedTable {
    rules: StoredRules,
    /// The frontends in its sets; whose they are does not stand there.
    frontends: BTreeMap<Frontend, ProxyFrontend>,
    node_port_addresses: BTreeSet<IpAddr>,
    /// What routes carry: frontends.
    routed: BTreeSet<Frontend>,
}

impl ProgrammedTable {
    /// Reads the table in the network namespace of the calling thread; none if it is not there. Needs CAP_NET_ADMIN. `progress` is told
    /// how many sets are read, and of how many.
    ///
    /// # Errors
    /// When the kernel refuses, or its tables change too often.
    pub fn read(progress: ReadProgress<'_>) -> Result<Option<Self>, PathError> {
        let failed =
            |error: NetlinkError| PathError(error.with_advice("read the table").to_string());
        let mut socket = Socket::open(&Linux::shared()).map_err(failed)?;
        let is_own = |family, name: &str| family == NFPROTO_INET && name == TABLE;
        for _ in 0..READ_ATTEMPTS {
            let ruleset = Ruleset::read_tables(&mut socket, is_own, true)?;
            if ruleset.tables().next().is_none() {
                return Ok(None);
            }
            let none = StoredSets::default();
            let sets = StoredSets::read(socket.kernel(), &ruleset, &none, progress);
            // A set may be gone before it is read.
            if socket.generation().map_err(failed)? == ruleset.generation {
                return Ok(Some(Self::new(ruleset, sets.map_err(failed)?)));
            }
        }
        Err(PathError(
            "the table changes constantly; try again".to_owned(),
        ))
    }

    fn new(ruleset: Ruleset, sets: StoredSets) -> Self {
        let mut table = Self {
            rules: StoredRules::default(),
            frontends: BTreeMap::new(),
            node_port_addresses: BTreeSet::new(),
            routed: BTreeSet::new(),
        };
        for (set_ref, shape) in ruleset.sets() {
            if shape.flags & set::FLAG_ANONYMOUS == 0 {
                table.add_set(set_ref, &sets);
            }
        }
        table.rules = StoredRules {
            ruleset,
            sets,
            keeps_in_maps: true,
        };
        table
    }

    fn add_set(&mut self, set: SetRef<'_>, sets: &StoredSets) {
        let Some(stored) = sets.get(set) else {
            return;
        };
        if set.set.starts_with(NODE_ADDRESSES) {
            let listed = stored.addresses().into_iter().map(|(address, _)| address);
            self.node_port_addresses.extend(listed);
        }
        if FRONTEND_KEYS.contains(&set.key_len) {
            for frontend in stored.elements().filter_map(|(key, _)| at_frontend(key)) {
                self.frontends.entry(frontend).or_default();
                if set.set.starts_with(ROUTED) {
                    self.routed.insert(frontend);
                }
            }
        }
        for (first, last) in stored.ranges() {
            if let (Some((frontend, first)), Some((_, last))) = (at_source(first), at_source(last))
            {
                let known = self.frontends.entry(frontend).or_default();
                known.source_ranges.push((first, last));
            }
        }
    }

    /// The frontends in its sets; whose they are does not stand there.
    pub const fn frontends(&self) -> &BTreeMap<Frontend, ProxyFrontend> {
        &self.frontends
    }

    /// The addresses that answer on node ports.
    pub const fn node_port_addresses(&self) -> &BTreeSet<IpAddr> {
        &self.node_port_addresses
    }

    /// How a new connection ends by its rules, for a client whose earlier connections are forgotten. Several ends depend on chance,
    /// which no version has wanted.
    ///
    /// # Errors
    /// When rules have a condition that cannot be evaluated.
    pub fn ends(&self, flow: &Flow, node: &NodeFacts) -> Result<BTreeSet<FlowEnd>, PathError> {
        let untouched = FlowEnd::without_backends(VerdictKind::NoService);
        let ends = self.rules.ends(flow, node)?;
        let frontend = Frontend::Address {
            address: flow.to(),
            protocol: flow.protocol(),
            port: flow.port(),
        };
        if ends == BTreeSet::from([untouched]) && self.routed.contains(&frontend) {
            return Ok([FlowEnd::without_backends(VerdictKind::Routed)].into());
        }
        Ok(ends)
    }
}

/// The frontend of a key that goes on with the address of a client, and that.
fn at_source(key: &[u8]) -> Option<(Frontend, IpAddr)> {
    let mut lengths = FRONTEND_KEYS.into_iter().zip(ADDRESS_BYTES);
    let (length, _) = lengths.find(|(frontend, client)| frontend + client == key.len())?;
    let (frontend, client) = key.split_at_checked(length)?;
    Some((at_frontend(frontend)?, address(client)?))
}

/// The frontend of a key; the unspecified address stands for those of the node.
fn at_frontend(key: &[u8]) -> Option<Frontend> {
    Some(match frontend_of(key)? {
        Frontend::Address {
            address,
            protocol,
            port,
        } if address.is_unspecified() => Frontend::NodePort { protocol, port },
        found => found,
    })
}
