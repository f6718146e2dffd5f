//! The sets and maps of the table.

use std::{collections::BTreeMap, fmt::Write};

use contiv_model::Protocol;

use super::{
    Family, TABLE,
    part::{self, Data, DeclaredBy, Part},
};
use crate::nftables::netlink::{
    Batch,
    constants::{LIST_ELEM, msg, rule, set},
};

/// The declared size of sets; all others are unbounded.
pub(crate) type Sizes = BTreeMap<Set, u32>;

/// The purpose of a set; [`SetKind::comment`] explains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SetKind {
    Services,
    PickChains,
    Backends,
    BackendsExternal,
    NoEndpoints,
    NoLocalEndpoints,
    RefusedNoEndpoints,
    RefusedPolicy,
    RefusedSourceRanges,
    RefusedClients,
    ServedInside,
    RoutedFrontends,
    MasqueradeAlways,
    MasqueradeLocal,
    MasqueradeSources,
    ClusterIps,
    Hairpin,
    Pods,
    PodInterfaces,
    NoMasquerade,
    NoMasqueradeInterfaces,
    Loopback,
    NodeIps,
    Sticky,
    LearnChains,
    Affinity,
    Restricted,
    SourceRanges,
    ServiceCidrs,
    NonMasqueradeCidrs,
    Routed,
    ServiceInterfaces,
}

/// The format of a set's keys and data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Frontend -> number of a chain, of the data type `meta priority`.
    Numbers { counter: bool },
    /// Number of a chain -> goto that chain.
    Chains,
    /// Frontend and slot -> backend.
    Slots,
    /// Frontends.
    Frontends,
    /// Frontends that count attempts; written by rules, with a timeout.
    Tally,
    /// Frontend, client and port of the client; written by rules, with a timeout.
    Attempts,
    /// Addresses.
    Addresses,
    /// Pairs of an address with itself.
    Pairs,
    /// Address ranges.
    Ranges,
    /// Names of interfaces, or prefixes of names.
    Interfaces,
    /// Output interface -> address.
    OutputAddresses,
    /// Frontend and client -> backend; written by rules, with a timeout.
    Memory,
    /// Frontend and range of clients.
    Sources,
}

impl Form {
    /// True if each element counts its lookups.
    pub(crate) const fn has_counter(self) -> bool {
        matches!(self, Self::Numbers { counter: true } | Self::Tally)
    }

    /// The size and the timeout of a set that packets write.
    const fn written_by_packets(self) -> Option<(u32, u32)> {
        match self {
            Self::Memory => Some((MEMORY_SIZE, MEMORY_TIMEOUT)),
            Self::Tally => Some((TALLY_SIZE, TALLY_TIMEOUT)),
            Self::Attempts => Some((ATTEMPTS_SIZE, ATTEMPTS_TIMEOUT)),
            _ => None,
        }
    }

    fn key(self, family: Family) -> Vec<Part> {
        let frontend = [Part::Daddr(family), Part::L4Proto, Part::Dport];
        match self {
            Self::Numbers { .. } | Self::Frontends | Self::Tally => frontend.into(),
            Self::Attempts => [&frontend[..], &[Part::Saddr(family), Part::Sport]].concat(),
            Self::Chains => vec![Part::Priority],
            Self::Slots => [&frontend[..], &[Part::Slot]].concat(),
            Self::Addresses | Self::Ranges => vec![Part::Daddr(family)],
            Self::Pairs => vec![Part::Saddr(family), Part::Daddr(family)],
            Self::Interfaces => vec![Part::InputInterface],
            Self::OutputAddresses => vec![Part::OutputInterface],
            Self::Memory | Self::Sources => [&frontend[..], &[Part::Saddr(family)]].concat(),
        }
    }

    /// The data of a map; none for a set.
    fn data(self, family: Family) -> Option<Data> {
        match self {
            Self::Numbers { .. } => Some(Data::Parts(vec![Part::Priority])),
            Self::Chains => Some(Data::Verdict),
            Self::Slots | Self::Memory => Some(Data::Parts(vec![Part::Daddr(family), Part::Dport])),
            Self::OutputAddresses => Some(Data::Parts(vec![Part::Saddr(family)])),
            Self::Frontends
            | Self::Tally
            | Self::Attempts
            | Self::Addresses
            | Self::Pairs
            | Self::Ranges
            | Self::Interfaces
            | Self::Sources => None,
        }
    }

    const fn is_interval(self) -> bool {
        matches!(self, Self::Ranges | Self::Interfaces | Self::Sources)
    }

    const fn declared_by(self) -> DeclaredBy {
        match self {
            // nft up to 1.0.6 forgets the expressions of as many parts as attempts have.
            Self::Addresses | Self::Pairs | Self::Ranges | Self::Interfaces | Self::Attempts => {
                DeclaredBy::Type
            }
            _ => DeclaredBy::Typeof,
        }
    }
}

impl SetKind {
    pub(crate) const ALL: [Self; 32] = [
        Self::Services,
        Self::PickChains,
        Self::Backends,
        Self::BackendsExternal,
        Self::NoEndpoints,
        Self::NoLocalEndpoints,
        Self::RefusedNoEndpoints,
        Self::RefusedPolicy,
        Self::RefusedSourceRanges,
        Self::RefusedClients,
        Self::ServedInside,
        Self::RoutedFrontends,
        Self::MasqueradeAlways,
        Self::MasqueradeLocal,
        Self::MasqueradeSources,
        Self::ClusterIps,
        Self::Hairpin,
        Self::Pods,
        Self::PodInterfaces,
        Self::NoMasquerade,
        Self::NoMasqueradeInterfaces,
        Self::Loopback,
        Self::NodeIps,
        Self::Sticky,
        Self::LearnChains,
        Self::Affinity,
        Self::Restricted,
        Self::SourceRanges,
        Self::ServiceCidrs,
        Self::NonMasqueradeCidrs,
        Self::Routed,
        Self::ServiceInterfaces,
    ];

    const fn stem(self) -> &'static str {
        match self {
            Self::Services => "services",
            Self::PickChains => "pick-chains",
            Self::Backends => "backends",
            Self::BackendsExternal => "backends-external",
            Self::NoEndpoints => "no-endpoints",
            Self::NoLocalEndpoints => "no-local-endpoints",
            Self::RefusedNoEndpoints => "refused-no-endpoints",
            Self::RefusedPolicy => "refused-policy",
            Self::RefusedSourceRanges => "refused-source-ranges",
            Self::RefusedClients => "refused-clients",
            Self::ServedInside => "served-inside",
            Self::RoutedFrontends => "routed-frontends",
            Self::MasqueradeAlways => "masquerade-always",
            Self::MasqueradeLocal => "masquerade-local",
            Self::MasqueradeSources => "masquerade-sources",
            Self::ClusterIps => "cluster-ips",
            Self::Hairpin => "hairpin",
            Self::Pods => "pods",
            Self::PodInterfaces => "pod-interfaces",
            Self::NoMasquerade => "no-masquerade",
            Self::NoMasqueradeInterfaces => "no-masquerade-interfaces",
            Self::Loopback => "loopback",
            Self::NodeIps => "node-ips",
            Self::Sticky => "sticky",
            Self::LearnChains => "learn-chains",
            Self::Affinity => "affinity",
            Self::Restricted => "restricted",
            Self::SourceRanges => "source-ranges",
            Self::ServiceCidrs => "service-cidrs",
            Self::NonMasqueradeCidrs => "non-masquerade-cidrs",
            Self::Routed => "routed",
            Self::ServiceInterfaces => "service-interfaces",
        }
    }

    /// The meaning of its elements.
    pub(super) const fn comment(self) -> &'static str {
        match self {
            Self::Services => {
                "Frontend -> its number of slots, which selects a chain `pick…`. The counter counts new \
                 connections."
            }
            Self::PickChains => {
                "Number of slots -> chain. The kernel validates every verdict of the table whenever one is \
                 added, so there is one for each number in use, and not for each frontend."
            }
            Self::Backends => "Frontend and slot -> backend. A backend of weight w has w slots.",
            Self::BackendsExternal => {
                "The same for external clients, with a policy that allows them only backends of this node."
            }
            Self::NoEndpoints => "Frontends without a backend anywhere: rejected.",
            Self::NoLocalEndpoints => {
                "Frontends with a policy that allows only backends of this node, if it has none: dropped."
            }
            Self::RefusedNoEndpoints => {
                "Frontends that refused attempts, since there is no backend. The counter counts attempts, each \
                 once; this and the following are written by rules."
            }
            Self::RefusedPolicy => "The same, since the policy allows only backends of this node.",
            Self::RefusedSourceRanges => {
                "The same, since the client is in none of the source ranges."
            }
            Self::RefusedClients => {
                "Attempts that were refused and counted a while ago: the same client, port and frontend again \
                 is a repetition."
            }
            Self::ServedInside => {
                "Frontends that drop external clients, and serve others: the counter counts these."
            }
            Self::RoutedFrontends => {
                "Frontends that routes carry to their backends: not translated."
            }
            Self::MasqueradeAlways => {
                "External frontends with policy Cluster: masqueraded for all clients."
            }
            Self::MasqueradeLocal => {
                "External frontends with policy Local: masqueraded only for clients on the node itself."
            }
            Self::MasqueradeSources => {
                "Output interface -> the address of this node that masqueraded connections get there; at all others \
                 the kernel chooses an address of the interface."
            }
            Self::ClusterIps => {
                "Cluster IPs: masqueraded for all clients except local pods, and rejected on ports that no \
                 service has."
            }
            Self::Hairpin => {
                "Local backends, twice: the connection of a pod to itself must be masqueraded."
            }
            Self::Pods => {
                "Ranges of the pods on this node, if pods are recognised by their addresses."
            }
            Self::PodInterfaces => {
                "Interfaces of the pods on this node, if pods are recognised by their interfaces."
            }
            Self::NoMasquerade => {
                "Clients whose address is kept for cluster IPs: the pods; or all or none, if configured so."
            }
            Self::NoMasqueradeInterfaces => "The same by interfaces.",
            Self::Loopback => {
                "Loopback, if node ports answer there: packets from other machines must not reach it."
            }
            Self::NodeIps => "Addresses on which node ports answer.",
            Self::Sticky => {
                "Frontends with session affinity -> the timeout in seconds, which selects a chain `learn…`."
            }
            Self::LearnChains => "Timeout -> chain.",
            Self::Affinity => {
                "Frontend and client -> backend: the affinity entries. Each new connection refreshes its \
                 entry."
            }
            Self::Restricted => "Frontends with source ranges.",
            Self::SourceRanges => "The source ranges of these frontends.",
            Self::ServiceCidrs => {
                "Ranges of cluster IPs: packets to an address that no service has are dropped."
            }
            Self::NonMasqueradeCidrs => {
                "With masquerading of pods outside the cluster: destinations that pods reach with their \
                 own addresses."
            }
            Self::Routed => "Addresses of services that routes carry.",
            Self::ServiceInterfaces => {
                "Interfaces where services answer, if they are limited; loopback is always among them."
            }
        }
    }

    /// True for sets that packets still need after they have passed a first lookup before a change.
    pub(crate) const fn is_needed_by_packets_under_way(self) -> bool {
        match self {
            Self::Backends
            | Self::BackendsExternal
            | Self::NoEndpoints
            | Self::NoLocalEndpoints
            | Self::RoutedFrontends
            | Self::MasqueradeAlways
            | Self::MasqueradeLocal
            | Self::ClusterIps
            | Self::Hairpin => true,
            Self::Services
            | Self::PickChains
            | Self::MasqueradeSources
            | Self::Pods
            | Self::PodInterfaces
            | Self::NoMasquerade
            | Self::NoMasqueradeInterfaces
            | Self::Loopback
            | Self::NodeIps
            | Self::Sticky
            | Self::LearnChains
            | Self::Affinity
            | Self::Restricted
            | Self::SourceRanges
            | Self::ServiceCidrs
            | Self::NonMasqueradeCidrs
            | Self::Routed
            | Self::ServiceInterfaces
            | Self::RefusedNoEndpoints
            | Self::RefusedPolicy
            | Self::RefusedSourceRanges
            | Self::RefusedClients
            | Self::ServedInside => false,
        }
    }

    /// True if its elements only record packets: they are never read to decide anything, and never compared.
    pub(crate) const fn only_records(self) -> bool {
        matches!(self.form(), Form::Tally | Form::Attempts)
    }

    pub(crate) const fn form(self) -> Form {
        match self {
            Self::Services => Form::Numbers { counter: true },
            Self::Sticky => Form::Numbers { counter: false },
            Self::PickChains | Self::LearnChains => Form::Chains,
            Self::Backends | Self::BackendsExternal => Form::Slots,
            Self::NoEndpoints
            | Self::NoLocalEndpoints
            | Self::RoutedFrontends
            | Self::MasqueradeAlways
            | Self::MasqueradeLocal
            | Self::Restricted => Form::Frontends,
            Self::RefusedNoEndpoints
            | Self::RefusedPolicy
            | Self::RefusedSourceRanges
            | Self::ServedInside => Form::Tally,
            Self::RefusedClients => Form::Attempts,
            Self::ClusterIps | Self::NodeIps | Self::Routed => Form::Addresses,
            Self::Hairpin => Form::Pairs,
            Self::Pods
            | Self::NoMasquerade
            | Self::Loopback
            | Self::ServiceCidrs
            | Self::NonMasqueradeCidrs => Form::Ranges,
            Self::PodInterfaces | Self::NoMasqueradeInterfaces | Self::ServiceInterfaces => {
                Form::Interfaces
            }
            Self::MasqueradeSources => Form::OutputAddresses,
            Self::Affinity => Form::Memory,
            Self::SourceRanges => Form::Sources,
        }
    }
}

/// One set of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Set {
    pub(crate) kind: SetKind,
    pub(crate) family: Family,
}

/// The declaration of a set: everything that must agree for an existing set to be usable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Declaration {
    pub(crate) flags: u32,
    pub(crate) key_type: u32,
    pub(crate) key_len: u32,
    /// Type and length; none for a set that is no map.
    pub(crate) data: Option<(u32, u32)>,
}

impl Declaration {
    /// True if an existing set with this declaration can be used as `desired`. The kernel reports the flags of attached
    /// expressions too.
    pub(crate) fn agrees_with(&self, desired: &Self) -> bool {
        const RELEVANT: u32 =
            set::FLAG_INTERVAL | set::FLAG_MAP | set::FLAG_TIMEOUT | set::FLAG_CONCAT;
        let relevant = |declaration: &Self| Self {
            flags: declaration.flags & RELEVANT,
            ..declaration.clone()
        };
        relevant(self) == relevant(desired)
    }
}

impl Set {
    pub(crate) const fn new(kind: SetKind, family: Family) -> Self {
        Self { kind, family }
    }

    /// Every set of the table, in the order of the skeleton.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        SetKind::ALL
            .into_iter()
            .flat_map(|kind| Family::ALL.map(|family| Self { kind, family }))
    }

    /// Every set of this form.
    pub(crate) fn of_form(form: Form) -> impl Iterator<Item = Self> {
        Self::all().filter(move |set| set.kind.form() == form)
    }

    pub(crate) fn name(self) -> String {
        format!("{}{}", self.kind.stem(), self.family.digit())
    }

    pub(crate) fn by_name(name: &str) -> Option<Self> {
        // Without the text of each name: it is called for each set that is read, and for each change that is heard of.
        let family = name.chars().next_back()?;
        let stem = name.strip_suffix(family)?;
        Self::all().find(|set| set.family.digit() == family && set.kind.stem() == stem)
    }

    pub(crate) fn declaration(self) -> Declaration {
        let form = self.kind.form();
        let key = form.key(self.family);
        let data = form.data(self.family).map(|data| match data {
            Data::Parts(parts) => (part::datatype(&parts), part::len(&parts)),
            Data::Verdict => (VERDICT, VERDICT_LEN),
        });
        let mut flags = 0;
        if data.is_some() {
            flags |= set::FLAG_MAP;
        }
        if form.is_interval() {
            flags |= if key.len() > 1 {
                set::FLAG_INTERVAL | set::FLAG_CONCAT
            } else {
                set::FLAG_INTERVAL
            };
        }
        if form.written_by_packets().is_some() {
            flags |= set::FLAG_TIMEOUT | set::FLAG_EVAL;
        }
        Declaration {
            flags,
            key_type: part::datatype(&key),
            key_len: part::len(&key),
            data,
        }
    }

    /// Adds the declaration in nft's language, in the lines of a table. `size` is the maximum number of elements, if bounded.
    pub(super) fn write_text(self, text: &mut String, size: Option<u32>) -> std::fmt::Result {
        let form = self.kind.form();
        let by = form.declared_by();
        let of_parts = |parts: &[Part]| {
            let word = |part: &Part| match by {
                DeclaredBy::Typeof => part.to_string(),
                DeclaredBy::Type => part.type_name().to_owned(),
            };
            parts.iter().map(word).collect::<Vec<_>>().join(" . ")
        };
        let (key, data) = (of_parts(&form.key(self.family)), form.data(self.family));
        writeln!(
            text,
            "\t{} {} {{",
            if data.is_some() { "map" } else { "set" },
            self.name()
        )?;
        write!(
            text,
            "\t\t{} {key}",
            if by == DeclaredBy::Typeof {
                "typeof"
            } else {
                "type"
            }
        )?;
        match &data {
            None => writeln!(text)?,
            Some(Data::Parts(parts)) => writeln!(text, " : {}", of_parts(parts))?,
            Some(Data::Verdict) => writeln!(text, " : verdict")?,
        }
        if let Some((size, timeout)) = form.written_by_packets() {
            let timeout = nft_duration(timeout);
            writeln!(
                text,
                "\t\tsize {size}\n\t\tflags dynamic,timeout\n\t\ttimeout {timeout}"
            )?;
        } else if let Some(size) = size {
            writeln!(text, "\t\tsize {size}")?;
        }
        if form.is_interval() {
            writeln!(text, "\t\tflags interval")?;
        }
        if form.has_counter() {
            writeln!(text, "\t\tcounter")?;
        }
        writeln!(text, "\t}}")
    }

    /// Adds the message that creates the set; `id` must be unique within a batch. `size` is the maximum number of elements, if
    /// bounded.
    pub(crate) fn write(self, batch: &mut Batch, id: u32, size: Option<u32>) {
        let Declaration {
            flags,
            key_type,
            key_len,
            data,
        } = self.declaration();
        let form = self.kind.form();
        let key = form.key(self.family);
        batch.create(msg::NEWSET, format!("set {}", self.name()), |message| {
            message.text(set::TABLE, TABLE);
            message.text(set::NAME, &self.name());
            message.u32(set::FLAGS, flags);
            message.u32(set::KEY_TYPE, key_type);
            message.u32(set::KEY_LEN, key_len);
            if let Some((data_type, data_len)) = data {
                message.u32(set::DATA_TYPE, data_type);
                message.u32(set::DATA_LEN, data_len);
            }
            message.u32(set::ID, id);
            match (form, form.written_by_packets()) {
                (_, Some((size, timeout))) => {
                    message.nested(set::DESC, |desc| desc.u32(set::DESC_SIZE, size));
                    message.bytes(set::TIMEOUT, &(u64::from(timeout) * 1000).to_be_bytes());
                }
                // The kernel compares the fields of an interval separately, so it must know their lengths.
                (Form::Sources, _) => message.nested(set::DESC, |desc| {
                    desc.nested(set::DESC_CONCAT, |fields| {
                        for part in &key {
                            fields.nested(LIST_ELEM, |field| field.u32(set::FIELD_LEN, part.len()));
                        }
                    });
                }),
                _ => {
                    if let Some(size) = size {
                        message.nested(set::DESC, |desc| desc.u32(set::DESC_SIZE, size));
                    }
                }
            }
            let data = form.data(self.family);
            // The kernel only stores what nft needs to print the set as declared.
            message.bytes(
                set::USERDATA,
                &part::userdata(&key, data.as_ref(), form.declared_by()),
            );
            if form.has_counter() {
                message.nested(set::EXPR, |expression| {
                    expression.text(rule::EXPR_NAME, "counter");
                    expression.nested(rule::EXPR_DATA, |_| ());
                });
            }
        });
    }
}

/// The protocols of services, all with ports.
pub(crate) const PROTOCOLS: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

/// Adds the anonymous set of the three protocols that a rule needs.
pub(super) fn write_protocols(batch: &mut Batch, id: u32) {
    use crate::nftables::netlink::constants::{data, elem};

    batch.create(msg::NEWSET, "anonymous set of protocols", |message| {
        message.text(set::TABLE, TABLE);
        message.text(set::NAME, ANONYMOUS);
        message.u32(set::FLAGS, set::FLAG_ANONYMOUS | set::FLAG_CONSTANT);
        message.u32(set::KEY_TYPE, part::INET_PROTOCOL);
        message.u32(set::KEY_LEN, 1);
        message.u32(set::ID, id);
        message.nested(set::DESC, |desc| desc.u32(set::DESC_SIZE, 3));
        message.bytes(set::USERDATA, &part::l4proto());
    });
    batch.create(
        msg::NEWSETELEM,
        "elements of the anonymous set of protocols",
        |message| {
            message.text(elem::LIST_TABLE, TABLE);
            message.text(elem::LIST_SET, ANONYMOUS);
            message.u32(elem::LIST_SET_ID, id);
            message.nested(elem::LIST_ELEMENTS, |list| {
                for protocol in PROTOCOLS {
                    list.nested(LIST_ELEM, |element| {
                        element.nested(elem::KEY, |key| key.u8(data::VALUE, protocol.number()));
                    });
                }
            });
        },
    );
}

/// The kernel's `NFT_DATA_VERDICT`, and the length that it gives to every verdict, independent of the requested one:
/// `sizeof(struct nft_verdict)`.
const VERDICT: u32 = 0xffff_ff00;
const VERDICT_LEN: u32 = 16;
/// The maximum number of affinity entries.
const MEMORY_SIZE: u32 = 65_536;
/// Three hours in seconds, Kubernetes' default; every entry is written with the timeout of its service.
const MEMORY_TIMEOUT: u32 = 3 * 3600;
/// The maximum number of frontends with refused attempts. The kernel allocates the hash table of that size.
const TALLY_SIZE: u32 = 8_192;
/// A frontend without refused attempts for a day counts from zero again, so that removed services leave nothing.
const TALLY_TIMEOUT: u32 = 24 * 3600;
/// How many refused attempts are remembered. With more within the timeout repetitions may count as attempts.
const ATTEMPTS_SIZE: u32 = 16_384;
/// Longer than the pause before any repetition of a SYN: Linux repeats for two minutes, and pauses for one at most.
const ATTEMPTS_TIMEOUT: u32 = 120;

/// In nft's largest unit.
fn nft_duration(seconds: u32) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let fitting = units
        .into_iter()
        .find(|(unit, _)| seconds.is_multiple_of(*unit));
    fitting.map_or_else(
        || format!("{seconds}s"),
        |(unit, name)| format!("{}{name}", seconds / unit),
    )
}

/// The kernel replaces `%d` with a free number.
pub(crate) const ANONYMOUS: &str = "__set%d";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_is_found_by_its_name_and_by_no_other() {
        for set in Set::all() {
            assert_eq!(Set::by_name(&set.name()), Some(set));
        }
        for name in [
            "",
            "4",
            "services",
            "services5",
            "services44",
            "xservices4",
            "services\u{664}",
        ] {
            assert_eq!(Set::by_name(name), None, "{name}");
        }
    }
}
