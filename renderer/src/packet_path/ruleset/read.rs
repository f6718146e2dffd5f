//! Reads all tables from the kernel.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Base, Chain, ChainKind, Hook, Rule, RuleList, Ruleset, SetShape, Table,
    expression::limit_of_object, legacy::legacy_tables, rule_list::RuleDestination,
};
use contiv_model::parallel::in_shares;

use crate::{
    kernel::Kernel,
    netlink::{Attributes, NetlinkError, Socket, Writer},
    nftables::{
        OWN_TABLES,
        netlink::constants::{
            NFPROTO_BRIDGE, NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6, NFPROTO_NETDEV, chain, expr,
            msg, object, rule, set, table, verdict,
        },
    },
    packet_path::PathError,
};

/// How often the rules are read again if they change meanwhile.
const READ_ATTEMPTS: usize = 5;
/// Of more chains the rules are read for each chain: for each piece of a dump of all rules the kernel walks over those before it.
const CHAINS_OF_ONE_DUMP: usize = 5_000;
/// So many chains are worth a thread.
const CHAINS_OF_THREAD: usize = 1_000;

impl Ruleset {
    /// Reads all tables of the socket's network namespace. Needs CAP_NET_ADMIN.
    ///
    /// # Errors
    /// When the kernel refuses, or its tables change too often.
    pub(crate) fn read(socket: &mut Socket) -> Result<Self, PathError> {
        let mut ruleset = Self::read_tables(socket, |_, _| true, false)?;
        ruleset.legacy = legacy_tables();
        Ok(ruleset)
    }

    /// Reads only the nftables tables that `keeps` names by family and name. The rules of the agent's tables are evaluated only if
    /// `evaluates_own`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(in crate::packet_path) fn read_tables(
        socket: &mut Socket,
        keeps: impl Fn(u8, &str) -> bool,
        evaluates_own: bool,
    ) -> Result<Self, PathError> {
        let failed =
            |error: NetlinkError| PathError(error.with_advice("read the tables").to_string());
        for _ in 0..READ_ATTEMPTS {
            let generation = socket.generation().map_err(failed)?;
            let mut ruleset = read_tables(socket, &keeps, evaluates_own).map_err(failed)?;
            if socket.generation().map_err(failed)? == generation {
                ruleset.generation = generation;
                return Ok(ruleset);
            }
        }
        Err(PathError(
            "the kernel's tables change constantly; try again".to_owned(),
        ))
    }
}

/// The tables that are read, by family and name.
type TableNumbers = BTreeMap<(u8, String), usize>;

fn read_tables(
    socket: &mut Socket,
    keeps: &impl Fn(u8, &str) -> bool,
    evaluates_own: bool,
) -> Result<Ruleset, NetlinkError> {
    let mut ruleset = Ruleset::default();
    let mut numbers = TableNumbers::new();
    socket.pass_families(msg::GETTABLE, |family, object| {
        if object
            .text(table::NAME)
            .is_some_and(|name| keeps(family, name))
        {
            ruleset.add_table(&mut numbers, family, object, evaluates_own);
        }
    })?;
    if numbers.is_empty() {
        return Ok(ruleset);
    }
    socket.pass_families(msg::GETCHAIN, |family, object| {
        ruleset.add_chain(&numbers, family, object);
    })?;
    socket.pass_families(msg::GETSET, |family, object| {
        ruleset.add_set(&numbers, family, object);
    })?;
    socket.pass_families(msg::GETOBJ, |family, object| {
        ruleset.add_object(&numbers, family, object);
    })?;
    if ruleset.chains.len() > CHAINS_OF_ONE_DUMP {
        ruleset.add_rules_by_chain(socket.kernel())?;
        return Ok(ruleset);
    }
    // Rules come chain by chain.
    let mut last: Option<(u8, String, String, Option<usize>)> = None;
    socket.pass_families(msg::GETRULE, |family, object| {
        let (Some(table), Some(chain)) = (object.text(rule::TABLE), object.text(rule::CHAIN))
        else {
            return;
        };
        let is_last = last.as_ref().is_some_and(|(of, of_table, of_chain, _)| {
            (*of, of_table.as_str(), of_chain.as_str()) == (family, table, chain)
        });
        if !is_last {
            let number = ruleset.foreign_chain(&numbers, family, table, chain);
            last = Some((family, table.to_owned(), chain.to_owned(), number));
        }
        if let Some((.., Some(number))) = &last {
            ruleset.add_rule(*number, object);
        }
        ruleset.has_conntrack = ruleset.has_conntrack || needs_conntrack(object);
    })?;
    Ok(ruleset)
}

impl Ruleset {
    /// Adds a table, unless its rules are inactive or of a family that connections do not pass.
    fn add_table(
        &mut self,
        numbers: &mut TableNumbers,
        family: u8,
        object: Attributes<'_>,
        evaluates_own: bool,
    ) {
        let families = [
            NFPROTO_IPV4,
            NFPROTO_IPV6,
            NFPROTO_INET,
            NFPROTO_NETDEV,
            NFPROTO_BRIDGE,
        ];
        let flags = object.u32(table::FLAGS).unwrap_or_default();
        if let Some(name) = object.text(table::NAME)
            && families.contains(&family)
            && flags & table::FLAG_DORMANT == 0
        {
            numbers.insert((family, name.to_owned()), self.tables.len());
            self.tables.push(Table {
                family,
                name: name.to_owned(),
                handle: number(object, table::HANDLE),
                is_own: !evaluates_own && family == NFPROTO_INET && OWN_TABLES.contains(&name),
                limits: BTreeMap::new(),
                sets: BTreeMap::new(),
            });
        }
    }

    fn add_chain(&mut self, numbers: &TableNumbers, family: u8, object: Attributes<'_>) {
        let (Some(table), Some(name)) = (object.text(chain::TABLE), object.text(chain::NAME))
        else {
            return;
        };
        if let Some(table) = numbers.get(&(family, table.to_owned())) {
            let base = base(family, object);
            self.bases
                .extend(base.is_some().then_some(self.chains.len()));
            self.chain_numbers
                .insert((*table, name.to_owned()), self.chains.len());
            self.chains.push(Chain {
                table: *table,
                name: name.to_owned(),
                base,
                rules: RuleList::default(),
            });
        }
    }

    fn add_set(&mut self, numbers: &TableNumbers, family: u8, object: Attributes<'_>) {
        if let Some(table) = object.text(set::TABLE)
            && let Some(name) = object.text(set::NAME)
            && let Some(key_len) = object.u32(set::KEY_LEN)
            && let Some(table) = numbers.get(&(family, table.to_owned()))
        {
            let table = &mut self.tables[*table];
            let has_numbers = object.u32(set::KEY_TYPE) == Some(set::KEY_TYPE_INTEGER);
            let description = object.nested(set::DESC).filter(|_| has_numbers);
            let shape = SetShape {
                key_len: key_len as usize,
                object: object.u32(set::OBJ_TYPE),
                flags: object.u32(set::FLAGS).unwrap_or_default(),
                timeout: number(object, set::TIMEOUT),
                has_verdicts: object.u32(set::DATA_TYPE) == Some(verdict::DATA_TYPE),
                fields: field_lengths(object),
                numbers: description.and_then(|it| it.u32(set::DESC_SIZE)),
                handles: (table.handle, number(object, set::HANDLE)),
            };
            table.sets.insert(name.to_owned(), shape);
        }
    }

    fn add_object(&mut self, numbers: &TableNumbers, family: u8, object: Attributes<'_>) {
        if let Some(table) = object.text(object::TABLE)
            && let Some(name) = object.text(object::NAME)
            && let Some(kind) = object.u32(object::TYPE)
            && let Some(limit) = limit_of_object(kind, object.nested(object::DATA))
            && let Some(table) = numbers.get(&(family, table.to_owned()))
        {
            self.tables[*table]
                .limits
                .insert((kind, name.to_owned()), limit);
        }
    }

    /// A chain whose rules are kept: not one of the agent.
    fn foreign_chain(
        &self,
        numbers: &TableNumbers,
        family: u8,
        table: &str,
        chain: &str,
    ) -> Option<usize> {
        let table = *numbers.get(&(family, table.to_owned()))?;
        if self.tables[table].is_own {
            return None;
        }
        self.chain_numbers.get(&(table, chain.to_owned())).copied()
    }

    /// Reads the rules of each chain by itself, but for those of the agent.
    fn add_rules_by_chain(&mut self, kernel: &Arc<dyn Kernel>) -> Result<(), NetlinkError> {
        let is_read = |number: &usize| !self.tables[self.chains[*number].table].is_own;
        let chains: Vec<usize> = (0..self.chains.len()).filter(is_read).collect();
        let read = |part: &[usize]| -> Result<Vec<(usize, Vec<u8>)>, NetlinkError> {
            let mut socket = Socket::open(kernel)?;
            let mut rules = Vec::new();
            for number in part {
                let Chain { table, name, .. } = &self.chains[*number];
                let Table {
                    name: table,
                    family,
                    ..
                } = &self.tables[*table];
                let fill = |message: &mut Writer<'_>| {
                    message.text(rule::TABLE, table);
                    message.text(rule::CHAIN, name);
                };
                let take = |rule: Attributes<'_>| rules.push((*number, rule.0.to_vec()));
                socket.pass_family(msg::GETRULE, *family, fill, take)?;
            }
            Ok(rules)
        };
        let parts = in_shares(&chains, CHAINS_OF_THREAD, read);
        for (chain, rule) in parts
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .flatten()
        {
            self.add_rule(chain, Attributes(&rule));
            self.has_conntrack = self.has_conntrack || needs_conntrack(Attributes(&rule));
        }
        Ok(())
    }

    /// Adds a rule at the end of a chain.
    pub(in crate::packet_path) fn add_rule(&mut self, chain: usize, object: Attributes<'_>) {
        let mut keep = |bytes: Option<&[u8]>| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(bytes.unwrap_or_default());
            start..self.bytes.len()
        };
        let expressions = keep(object.get(rule::EXPRESSIONS));
        let userdata = keep(object.get(rule::USERDATA));
        let family = self.tables[self.chains[chain].table].family;
        let conditions = object.nested(rule::EXPRESSIONS);
        self.chains[chain].rules.push(Rule {
            handle: number(object, rule::HANDLE),
            destination: conditions.map_or_else(RuleDestination::default, |conditions| {
                RuleDestination::of(family, conditions)
            }),
            expressions,
            userdata,
        });
    }
}

/// The lengths of the fields of a set's keys, if it says so.
fn field_lengths(object: Attributes<'_>) -> Vec<usize> {
    let fields = object.nested(set::DESC);
    let fields = fields.and_then(|of| of.nested(set::DESC_CONCAT));
    let fields = fields.into_iter().flat_map(Attributes::iter);
    let length = |(_, field)| Attributes(field).u32(set::FIELD_LEN);
    fields
        .filter_map(length)
        .map(|length| length as usize)
        .collect()
}

/// A number of eight bytes; 0 if it is not there.
fn number(object: Attributes<'_>, kind: u16) -> u64 {
    let bytes = object.get(kind).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_be_bytes)
}

/// Whether the kernel tracks connections because of this rule: without one it does not, and nothing passes the chains of nat.
fn needs_conntrack(object: Attributes<'_>) -> bool {
    const STATEMENTS: [&str; 8] = [
        "ct",
        "nat",
        "masq",
        "redir",
        "connlimit",
        "synproxy",
        "flow_offload",
        "objref",
    ];
    const EXTENSIONS: [&str; 16] = [
        "conntrack",
        "state",
        "connmark",
        "connbytes",
        "connlabel",
        "connlimit",
        "helper",
        "DNAT",
        "SNAT",
        "MASQUERADE",
        "REDIRECT",
        "NETMAP",
        "CT",
        "CONNMARK",
        "CONNSECMARK",
        "SYNPROXY",
    ];
    let expressions = object.nested(rule::EXPRESSIONS);
    expressions
        .into_iter()
        .flat_map(Attributes::iter)
        .any(|(_, expression)| {
            let expression = Attributes(expression);
            match expression.text(rule::EXPR_NAME) {
                Some("match" | "target") => {
                    let extension = expression.nested(rule::EXPR_DATA);
                    let name = extension.and_then(|extension| extension.text(expr::TARGET_NAME));
                    name.is_some_and(|name| EXTENSIONS.contains(&name))
                }
                Some(name) => STATEMENTS.contains(&name),
                None => false,
            }
        })
}

/// What a base chain has beyond other chains; none of another chain, or at a hook that no connection passes.
fn base(family: u8, object: Attributes<'_>) -> Option<Base> {
    let hook = object.nested(chain::HOOK)?;
    let number = hook.u32(chain::HOOK_HOOKNUM)?;
    let devices = hook
        .nested(chain::HOOK_DEVS)
        .into_iter()
        .flat_map(Attributes::iter)
        .map(|(_, name)| name)
        .chain(hook.get(chain::HOOK_DEV));
    let device = |name: &[u8]| {
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    };
    let devices = devices.map(device).collect();
    let policy = object.u32(chain::POLICY).unwrap_or(chain::POLICY_ACCEPT);
    Some(Base {
        kind: match object.text(chain::TYPE) {
            Some("nat") => ChainKind::Nat,
            Some("route") => ChainKind::Route,
            _ => ChainKind::Filter,
        },
        hook: hook_of(family, number)?,
        priority: hook.u32(chain::HOOK_PRIORITY)?.cast_signed(),
        drops_by_policy: policy != chain::POLICY_ACCEPT,
        devices,
    })
}

/// The hook of a number: `nf_inet_hooks` and `nf_dev_hooks`.
fn hook_of(family: u8, number: u32) -> Option<Hook> {
    let of_ip = [
        Hook::Prerouting,
        Hook::Input,
        Hook::Forward,
        Hook::Output,
        Hook::Postrouting,
        Hook::Ingress,
    ];
    let of_device = [Hook::Ingress, Hook::Egress];
    let hooks: &[Hook] = if family == NFPROTO_NETDEV {
        &of_device
    } else {
        &of_ip
    };
    hooks.get(number as usize).copied()
}
