//! The sets and maps of the table.

use std::collections::BTreeMap;

use contiv_model::Protocol;

use super::{
    Family, TABLE,
    typeof_data::{self, Typeof},
};
use crate::nftables::netlink::{
    Batch,
    constants::{LIST_ELEM, msg, rule, set},
};

/// The declared size of sets; all others are unbounded.
pub(crate) type Sizes = BTreeMap<Set, u32>;

/// The purpose of a set. The comments in `skeleton.nft` explain more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SetKind {
    Services,
    PickChains,
    Backends,
    BackendsExternal,
    NoEndpoints,
    NoLocalEndpoints,
    RoutedFrontends,
    MasqueradeAlways,
    MasqueradeLocal,
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
    Frontends { counter: bool },
    /// Addresses.
    Addresses,
    /// Pairs of an address with itself.
    Pairs,
    /// Address ranges.
    Ranges,
    /// Names of interfaces, or prefixes of names.
    Interfaces,
    /// Frontend and client -> backend; written by rules, with a timeout.
    Memory,
    /// Frontend and range of clients.
    Sources,
}

impl Form {
    /// True if each element counts its lookups.
    pub(crate) const fn has_counter(self) -> bool {
        matches!(self, Self::Numbers { counter: true } | Self::Frontends { counter: true })
    }
}

impl SetKind {
    pub(crate) const ALL: [Self; 26] = [
        Self::Services,
        Self::PickChains,
        Self::Backends,
        Self::BackendsExternal,
        Self::NoEndpoints,
        Self::NoLocalEndpoints,
        Self::RoutedFrontends,
        Self::MasqueradeAlways,
        Self::MasqueradeLocal,
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
            Self::RoutedFrontends => "routed-frontends",
            Self::MasqueradeAlways => "masquerade-always",
            Self::MasqueradeLocal => "masquerade-local",
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
            | Self::ServiceInterfaces => false,
        }
    }

    pub(crate) const fn form(self) -> Form {
        match self {
            Self::Services => Form::Numbers { counter: true },
            Self::Sticky => Form::Numbers { counter: false },
            Self::PickChains | Self::LearnChains => Form::Chains,
            Self::Backends | Self::BackendsExternal => Form::Slots,
            Self::NoEndpoints | Self::NoLocalEndpoints => Form::Frontends { counter: true },
            Self::RoutedFrontends | Self::MasqueradeAlways | Self::MasqueradeLocal | Self::Restricted => {
                Form::Frontends { counter: false }
            }
            Self::ClusterIps | Self::NodeIps | Self::Routed => Form::Addresses,
            Self::Hairpin => Form::Pairs,
            Self::Pods
            | Self::NoMasquerade
            | Self::Loopback
            | Self::ServiceCidrs
            | Self::NonMasqueradeCidrs => Form::Ranges,
            Self::PodInterfaces | Self::NoMasqueradeInterfaces | Self::ServiceInterfaces => Form::Interfaces,
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
    /// True if an existing set with this declaration can be used as `wanted`. The kernel reports the flags of attached
    /// expressions too.
    pub(crate) fn agrees_with(&self, wanted: &Self) -> bool {
        const RELEVANT: u32 = set::FLAG_INTERVAL | set::FLAG_MAP | set::FLAG_TIMEOUT | set::FLAG_CONCAT;
        let relevant =
            |declaration: &Self| Self { flags: declaration.flags & RELEVANT, ..declaration.clone() };
        relevant(self) == relevant(wanted)
    }
}

/// nft's numbers for data types; a concatenation packs them at six bits each. Source: nftables' `include/datatype.h`.
mod datatype {
    pub(super) const INTEGER: u32 = 4;
    pub(super) const IPADDR: u32 = 7;
    pub(super) const IP6ADDR: u32 = 8;
    pub(super) const INET_PROTOCOL: u32 = 12;
    pub(super) const IFNAME: u32 = 41;
    pub(super) const INET_SERVICE: u32 = 13;
    pub(super) const CLASSID: u32 = 23;
    /// The kernel's `NFT_DATA_VERDICT`.
    pub(super) const VERDICT: u32 = 0xffff_ff00;

    /// The kernel's length of any verdict, whatever is requested: `sizeof(struct nft_verdict)`.
    pub(super) const VERDICT_LEN: u32 = 16;

    pub(super) fn concatenation(parts: &[u32]) -> u32 {
        parts.iter().fold(0, |packed, part| packed << 6 | part)
    }
}

impl Set {
    pub(crate) const fn new(kind: SetKind, family: Family) -> Self {
        Self { kind, family }
    }

    /// Every set of the table, in the order of the skeleton.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        SetKind::ALL.into_iter().flat_map(|kind| Family::ALL.map(|family| Self { kind, family }))
    }

    /// Every set of this form.
    pub(crate) fn of_form(form: Form) -> impl Iterator<Item = Self> {
        Self::all().filter(move |set| set.kind.form() == form)
    }

    pub(crate) fn name(self) -> String {
        format!("{}{}", self.kind.stem(), self.family.digit())
    }

    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Self::all().find(|set| set.name() == name)
    }

    pub(crate) fn declaration(self) -> Declaration {
        let (address, width) = match self.family {
            Family::V4 => (datatype::IPADDR, 4),
            Family::V6 => (datatype::IP6ADDR, 16),
        };
        let frontend = [address, datatype::INET_PROTOCOL, datatype::INET_SERVICE];
        let frontend_type = datatype::concatenation(&frontend);
        let slot_type = datatype::concatenation(&[frontend[0], frontend[1], frontend[2], datatype::INTEGER]);
        let source_type = datatype::concatenation(&[frontend[0], frontend[1], frontend[2], address]);
        let backend_type = datatype::concatenation(&[address, datatype::INET_SERVICE]);
        let (flags, key_type, key_len, data) = match self.kind.form() {
            Form::Numbers { .. } => {
                (set::FLAG_MAP, frontend_type, width + 8, Some((datatype::CLASSID, NUMBER_LEN)))
            }
            Form::Chains => (
                set::FLAG_MAP,
                datatype::CLASSID,
                NUMBER_LEN,
                Some((datatype::VERDICT, datatype::VERDICT_LEN)),
            ),
            Form::Slots => (set::FLAG_MAP, slot_type, width + 12, Some((backend_type, width + 4))),
            Form::Frontends { .. } => (0, frontend_type, width + 8, None),
            Form::Addresses => (0, address, width, None),
            Form::Pairs => (0, datatype::concatenation(&[address, address]), 2 * width, None),
            Form::Ranges => (set::FLAG_INTERVAL, address, width, None),
            Form::Interfaces => (set::FLAG_INTERVAL, datatype::IFNAME, IFNAMSIZ, None),
            Form::Memory => (
                set::FLAG_MAP | set::FLAG_TIMEOUT | set::FLAG_EVAL,
                source_type,
                2 * width + 8,
                Some((backend_type, width + 4)),
            ),
            Form::Sources => (set::FLAG_INTERVAL | set::FLAG_CONCAT, source_type, 2 * width + 8, None),
        };
        Declaration { flags, key_type, key_len, data }
    }

    /// The data that nft needs to print the set as declared; the kernel only stores it.
    fn userdata(self) -> Vec<u8> {
        let frontend = [Typeof::Daddr(self.family), Typeof::L4Proto, Typeof::Dport];
        match self.kind.form() {
            Form::Numbers { .. } => typeof_data::number_map(&frontend),
            Form::Chains => typeof_data::verdicts_by_number(),
            Form::Slots => {
                let key = [frontend[0], frontend[1], frontend[2], Typeof::Slot];
                typeof_data::map(&key, &[frontend[0], frontend[2]])
            }
            Form::Frontends { .. } => typeof_data::set(&frontend),
            Form::Memory => {
                let key = [frontend[0], frontend[1], frontend[2], Typeof::Saddr(self.family)];
                typeof_data::map(&key, &[frontend[0], frontend[2]])
            }
            Form::Sources => {
                typeof_data::set(&[frontend[0], frontend[1], frontend[2], Typeof::Saddr(self.family)])
            }
            Form::Addresses | Form::Ranges => typeof_data::plain_address(),
            Form::Interfaces => typeof_data::plain_text(),
            Form::Pairs => typeof_data::plain_concatenation(),
        }
    }

    /// Adds the message that creates the set; `id` must be unique within a batch. `size` is the maximum number of elements, if
    /// bounded.
    pub(crate) fn write(self, batch: &mut Batch, id: u32, size: Option<u32>) {
        let Declaration { flags, key_type, key_len, data } = self.declaration();
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
            match self.kind.form() {
                Form::Memory => {
                    message.nested(set::DESC, |desc| desc.u32(set::DESC_SIZE, MEMORY_SIZE));
                    message.bytes(set::TIMEOUT, &MEMORY_TIMEOUT_MS.to_be_bytes());
                }
                // The kernel compares the fields of an interval separately, so it must know their lengths.
                Form::Sources => message.nested(set::DESC, |desc| {
                    desc.nested(set::DESC_CONCAT, |fields| {
                        let address = u32::from(self.family.address_len());
                        for length in [address, 1, 2, address] {
                            fields.nested(LIST_ELEM, |field| field.u32(set::FIELD_LEN, length));
                        }
                    });
                }),
                _ => {
                    if let Some(size) = size {
                        message.nested(set::DESC, |desc| desc.u32(set::DESC_SIZE, size));
                    }
                }
            }
            message.bytes(set::USERDATA, &self.userdata());
            if self.kind.form().has_counter() {
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
        message.u32(set::KEY_TYPE, datatype::INET_PROTOCOL);
        message.u32(set::KEY_LEN, 1);
        message.u32(set::ID, id);
        message.nested(set::DESC, |desc| desc.u32(set::DESC_SIZE, 3));
        message.bytes(set::USERDATA, &typeof_data::l4proto());
    });
    batch.create(msg::NEWSETELEM, "elements of the anonymous set of protocols", |message| {
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
    });
}

/// Bytes of a number of a chain.
const NUMBER_LEN: u32 = 4;
/// Bytes of an interface name with its padding. Source: `if.h`.
const IFNAMSIZ: u32 = 16;
/// The maximum number of affinity entries.
const MEMORY_SIZE: u32 = 65_536;
/// Three hours, Kubernetes' default; every entry is written with the timeout of its service.
const MEMORY_TIMEOUT_MS: u64 = 3 * 3600 * 1000;

/// The kernel replaces `%d` with a free number.
pub(crate) const ANONYMOUS: &str = "__set%d";
