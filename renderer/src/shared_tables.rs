//! The kernel's tables that all connections of a machine share: when one is full, connections fail that nobody refuses.
//!
//! Sources: the kernel's `Documentation/networking/nf_conntrack-sysctl.rst` and `ip-sysctl.rst`, `include/uapi/linux/neighbour.h` and
//! `netfilter/nfnetlink_conntrack.h`.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    kernel::{Kernel, NetlinkProtocol},
    linux::Linux,
    netlink::{
        Attributes, NetlinkError, Socket,
        message::{NFNL_SUBSYS_CTNETLINK, dump_request, kind_of, messages},
    },
};

/// A table with this part of its entries in use is nearly full, in percent.
const NEARLY_FULL: u64 = 80;

/// `IPCTNL_MSG_CT_GET_STATS_CPU`
const GET_STATS_CPU: u8 = 4;
/// `CTA_STATS_INSERT_FAILED`, `CTA_STATS_DROP`, `CTA_STATS_EARLY_DROP`
const STATS_INSERT_FAILED: u16 = 9;
const STATS_DROP: u16 = 10;
const STATS_EARLY_DROP: u16 = 11;

const RTM_NEWNEIGHTBL: u16 = 64;
const RTM_GETNEIGHTBL: u16 = 66;
/// `NDTA_NAME`, `NDTA_THRESH3`, `NDTA_CONFIG`, `NDTA_STATS`
const TABLE_NAME: u16 = 1;
const TABLE_THRESH3: u16 = 4;
const TABLE_CONFIG: u16 = 5;
const TABLE_STATS: u16 = 7;
/// The offsets of `ndtc_entries` in `struct ndt_config`, and of `ndts_table_fulls` in `struct ndt_stats`.
const CONFIG_ENTRIES: usize = 4;
const STATS_TABLE_FULLS: usize = 80;

/// A table of the kernel that all connections share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharedTable {
    /// The connections that are tracked.
    Conntrack,
    /// The neighbours of IPv4: their addresses on the links of this machine.
    Arp,
    /// The neighbours of IPv6.
    Ndisc,
}

impl SharedTable {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Conntrack, Self::Arp, Self::Ndisc];

    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Conntrack => "conntrack",
            Self::Arp => "arp",
            Self::Ndisc => "ndisc",
        }
    }

    /// The setting with its limit, as `sysctl` has it.
    pub const fn limit_setting(self) -> &'static str {
        match self {
            Self::Conntrack => "net.netfilter.nf_conntrack_max",
            Self::Arp => "net.ipv4.neigh.default.gc_thresh3",
            Self::Ndisc => "net.ipv6.neigh.default.gc_thresh3",
        }
    }
}

/// How a connection is lost for lack of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// The table is full: a packet was dropped, or a neighbour not asked for.
    Full,
    /// Another connection, of which no answer was seen, was forgotten to make room.
    Evicted,
    /// The packets of two connections could not be told apart: the first two of a socket, as resolvers send them, or all ports of a
    /// masquerading address are in use to one destination.
    Clash,
}

impl Loss {
    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Evicted => "evicted",
            Self::Clash => "clash",
        }
    }
}

/// How full a table is, and what was lost since the machine has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TableUse {
    /// The table.
    pub table: SharedTable,
    /// The number of its entries.
    pub entries: u64,
    /// Its limit of entries.
    pub limit: u64,
    /// Losses by their kind.
    pub losses: Vec<(Loss, u64)>,
}

/// A table in which connections fail, or soon will.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableProblem {
    /// The table.
    pub table: SharedTable,
    /// The number of its entries.
    pub entries: u64,
    /// Its limit of entries.
    pub limit: u64,
    /// What was lost in the last minutes for want of room; empty if it is nearly full only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<(Loss, u64)>,
}

impl TableUse {
    /// What is wrong with the table, if these losses were counted some minutes `before`.
    pub fn problem(&self, before: &[(Loss, u64)]) -> Option<TableProblem> {
        let Self {
            table,
            entries,
            limit,
            losses,
        } = self;
        // A table of neighbours also has entries that its limit does not count, such as permanent ones.
        let is_nearly_full = *table == SharedTable::Conntrack
            && *limit > 0
            && entries.saturating_mul(100) >= limit.saturating_mul(NEARLY_FULL);
        let counted_before = |loss: Loss| {
            let same = before.iter().find(|(other, _)| *other == loss);
            same.map(|(_, count)| *count)
        };
        // A counter that is lower than before has begun anew.
        let lost = losses.iter().filter_map(|(loss, count)| {
            let lost = count.saturating_sub(counted_before(*loss)?);
            let counts = match loss {
                Loss::Evicted => true,
                // Conntrack also drops packets that it does not understand.
                Loss::Full => is_nearly_full || *table != SharedTable::Conntrack,
                // Some are everyday life: the packet is sent again.
                Loss::Clash => false,
            };
            (lost > 0 && counts).then_some((*loss, lost))
        });
        let lost: Vec<(Loss, u64)> = lost.collect();
        (is_nearly_full || !lost.is_empty()).then_some(TableProblem {
            table: *table,
            entries: *entries,
            limit: *limit,
            lost,
        })
    }
}

impl fmt::Display for TableProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            table,
            entries,
            limit,
            lost,
        } = self;
        let (what, when_full) = match table {
            SharedTable::Conntrack => ("connections are tracked", "new connections are dropped"),
            SharedTable::Arp | SharedTable::Ndisc => (
                "neighbours are known",
                "addresses on this machine's links are not reached",
            ),
        };
        write!(f, "{entries} of at most {limit} {what}")?;
        for (loss, count) in lost {
            match loss {
                Loss::Full => write!(f, "; {count} times there was no room in the last minutes")?,
                Loss::Evicted => write!(f, "; {count} were forgotten to make room")?,
                Loss::Clash => {}
            }
        }
        let setting = table.limit_setting();
        write!(f, "; when there is no room {when_full}: raise {setting}")
    }
}

/// Reads the shared tables of this process's network namespace. What cannot be read is left out: without a connection of
/// services, conntrack may not be loaded.
pub fn read() -> Vec<TableUse> {
    read_from(&Linux::shared())
}

/// The same for a kernel of the caller's choice.
pub fn read_from(kernel: &Arc<dyn Kernel>) -> Vec<TableUse> {
    let mut tables: Vec<TableUse> = conntrack(kernel).into_iter().collect();
    tables.extend(neighbours(kernel).unwrap_or_default());
    tables
}

/// The use of the table of connections; none if it cannot be read.
pub(crate) fn conntrack(kernel: &Arc<dyn Kernel>) -> Option<TableUse> {
    let number = |name: &str| {
        let setting = kernel.setting(&format!("net/netfilter/nf_conntrack_{name}"));
        setting.ok()?.parse().ok()
    };
    Some(TableUse {
        table: SharedTable::Conntrack,
        entries: number("count")?,
        limit: number("max")?,
        losses: conntrack_losses(kernel).unwrap_or_default(),
    })
}

/// The losses of all processors.
fn conntrack_losses(kernel: &Arc<dyn Kernel>) -> Result<Vec<(Loss, u64)>, NetlinkError> {
    let request = dump_request(kind_of(NFNL_SUBSYS_CTNETLINK, GET_STATS_CPU), 0, |_| ());
    let counted = [
        (Loss::Full, STATS_DROP),
        (Loss::Evicted, STATS_EARLY_DROP),
        (Loss::Clash, STATS_INSERT_FAILED),
    ];
    let mut losses = counted.map(|(loss, _)| (loss, 0));
    Socket::open(kernel)?.stream(&request, |piece| {
        let objects = messages(&piece).filter_map(|message| message.object(NFNL_SUBSYS_CTNETLINK));
        for processor in objects {
            for ((_, attribute), (_, count)) in counted.iter().zip(&mut losses) {
                *count += processor.u32(*attribute).map_or(0, u64::from);
            }
        }
    })?;
    // A packet that clashes is dropped, too.
    let clashes = losses[2].1;
    losses[0].1 = losses[0].1.saturating_sub(clashes);
    Ok(losses.into())
}

fn neighbours(kernel: &Arc<dyn Kernel>) -> Result<Vec<TableUse>, NetlinkError> {
    let mut tables = Vec::new();
    let mut socket = Socket::open_for(kernel, NetlinkProtocol::Route)?;
    socket.stream(&dump_request(RTM_GETNEIGHTBL, 0, |_| ()), |piece| {
        let found = messages(&piece)
            .filter(|message| message.kind == RTM_NEWNEIGHTBL)
            .filter_map(|message| message.object(0));
        tables.extend(found.filter_map(neighbour_table));
    })?;
    Ok(tables)
}

/// A table of neighbours. Messages about its parameters for one interface have no configuration.
fn neighbour_table(attributes: Attributes<'_>) -> Option<TableUse> {
    let table = match attributes.text(TABLE_NAME)? {
        "arp_cache" => SharedTable::Arp,
        "ndisc_cache" => SharedTable::Ndisc,
        _ => return None,
    };
    let entries = attributes.get(TABLE_CONFIG)?.get(CONFIG_ENTRIES..)?;
    let limit = attributes.get(TABLE_THRESH3)?;
    let full = attributes
        .get(TABLE_STATS)
        .and_then(|stats| stats.get(STATS_TABLE_FULLS..)?.first_chunk().copied())
        .map(|count| (Loss::Full, u64::from_ne_bytes(count)));
    Some(TableUse {
        table,
        entries: u32::from_ne_bytes(*entries.first_chunk()?).into(),
        limit: u32::from_ne_bytes(*limit.first_chunk()?).into(),
        losses: full.into_iter().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(entries: u64, losses: &[(Loss, u64)]) -> TableUse {
        TableUse {
            table: SharedTable::Conntrack,
            entries,
            limit: 1000,
            losses: losses.to_vec(),
        }
    }

    #[test]
    fn table_is_a_problem_when_it_is_nearly_full() {
        assert_eq!(used(799, &[]).problem(&[]), None);
        let problem = used(800, &[]).problem(&[]).unwrap();
        assert_eq!(
            problem.to_string(),
            "800 of at most 1000 connections are tracked; when there is no room new connections are dropped: raise \
             net.netfilter.nf_conntrack_max"
        );
        assert_eq!(
            TableUse {
                limit: 0,
                ..used(0, &[])
            }
            .problem(&[]),
            None,
            "it has no limit"
        );
    }

    #[test]
    fn table_is_a_problem_while_connections_are_lost() {
        let losses = [(Loss::Full, 7), (Loss::Evicted, 3), (Loss::Clash, 2)];
        let now = used(10, &losses);
        assert_eq!(now.problem(&losses), None);
        assert_eq!(now.problem(&[]), None, "they may be of last year");
        let before = [(Loss::Full, 7), (Loss::Evicted, 9), (Loss::Clash, 0)];
        assert_eq!(now.problem(&before), None, "begun anew, and a clash");
        let before = [(Loss::Full, 4), (Loss::Evicted, 1), (Loss::Clash, 2)];
        let lost = |entries| used(entries, &losses).problem(&before).unwrap().lost;
        assert_eq!(
            lost(10),
            [(Loss::Evicted, 2)],
            "a packet may be dropped for other reasons"
        );
        assert_eq!(lost(900), [(Loss::Full, 3), (Loss::Evicted, 2)]);
        let neighbours = TableUse {
            table: SharedTable::Arp,
            ..used(999, &[(Loss::Full, 7)])
        };
        assert_eq!(
            neighbours.problem(&[(Loss::Full, 7)]),
            None,
            "some are not limited"
        );
        assert!(neighbours.problem(&[(Loss::Full, 6)]).is_some());
        let problem = used(900, &losses).problem(&before).unwrap();
        let text = problem.to_string();
        assert!(
            text.contains("3 times there was no room in the last minutes; 2 were forgotten"),
            "{text}"
        );
        assert!(
            text.ends_with("raise net.netfilter.nf_conntrack_max"),
            "{text}"
        );
    }
}
