//! Filters of traffic control on an interface: programs of BPF and others that see packets before, or after, all rules. Sources: the
//! kernel's `include/uapi/linux/pkt_sched.h`, `rtnetlink.h` and `gen_stats.h`.

use serde::Serialize;

use super::{
    PathError,
    kernel_socket::{KernelSocket, number_at},
    links::Link,
};
use crate::netlink::Attributes;

const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTFILTER: u16 = 44;
const RTM_GETTFILTER: u16 = 46;
/// The length of `struct tcmsg`, and the offsets of its interface and its parent.
const HEADER: usize = 20;
const INTERFACE: usize = 4;
const PARENT: usize = 12;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
/// `TCA_STATS_QUEUE`, and the offset of `drops` in `struct gnet_stats_queue`.
const STATS_QUEUE: u16 = 3;
const DROPS: usize = 8;
/// Attributes of an action, those of `mirred` below its options, and the basic ones below its statistics.
const ACTION_KIND: u16 = 1;
const ACTION_OPTIONS: u16 = 2;
const ACTION_STATISTICS: u16 = 4;
const MIRRED_PARAMETERS: u16 = 2;
const STATISTICS_BASIC: u16 = 1;
/// The offsets of `eaction` and `ifindex` in `struct tc_mirred`, and of `packets` in `struct gnet_stats_basic`.
const MIRRED_ACTION: usize = 20;
const MIRRED_INTERFACE: usize = 24;
const BASIC_PACKETS: usize = 8;
/// `TCA_EGRESS_REDIR` and `TCA_INGRESS_REDIR`
const REDIRECTS: [u32; 2] = [1, 3];
/// `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)` and the same with `TC_H_MIN_EGRESS`.
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;

/// The filters of traffic control on an interface. Those that are attached as links of BPF (tcx) are not among them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TrafficFilters {
    /// The kinds of those for packets that come in, as in "bpf" and "u32".
    pub ingress: Vec<String>,
    /// The kinds of those for packets that leave.
    pub egress: Vec<String>,
    /// How many packets they dropped, if the kernel counts them.
    pub dropped: u32,
    /// How many packets they sent to other interfaces, from which they do not come back.
    pub redirected: u32,
}

impl TrafficFilters {
    /// True if there are none.
    pub const fn is_empty(&self) -> bool {
        self.ingress.is_empty() && self.egress.is_empty()
    }
}

/// Lists the filters on an interface. `comes_back`: packets that are sent to the interface with this number come back, as from those that
/// only limit the rate.
pub(super) fn list(
    socket: &mut KernelSocket,
    link: &Link,
    comes_back: impl Fn(u32) -> bool,
) -> Result<TrafficFilters, PathError> {
    let mut filters = TrafficFilters::default();
    let mut has_filters = false;
    let kinds = [RTM_GETQDISC, RTM_NEWQDISC];
    socket.dump(
        kinds,
        &header(link.index, 0),
        |_| (),
        |message| {
            if let Some(dropped) = drops_of_filters(message, link.index) {
                has_filters = true;
                filters.dropped = dropped;
            }
        },
    )?;
    if !has_filters {
        return Ok(filters);
    }
    let mut redirected = 0_u32;
    for (parent, found) in [
        (INGRESS, &mut filters.ingress),
        (EGRESS, &mut filters.egress),
    ] {
        let kinds = [RTM_GETTFILTER, RTM_NEWTFILTER];
        socket.dump(
            kinds,
            &header(link.index, parent),
            |_| (),
            |message| {
                let attributes = Attributes(message.get(HEADER..).unwrap_or_default());
                // A classifier of several parts is listed once for each of them.
                if let Some(kind) = attributes.text(TCA_KIND)
                    && number_at(message, INTERFACE) == Some(link.index)
                {
                    let to_others = redirects(kind, attributes).filter(|(to, _)| !comes_back(*to));
                    redirected =
                        to_others.fold(redirected, |sum, (_, count)| sum.saturating_add(count));
                    if !found.iter().any(|known| known == kind) {
                        found.push(kind.to_owned());
                    }
                }
            },
        )?;
    }
    filters.redirected = redirected;
    Ok(filters)
}

/// The interfaces to which a filter sends packets, with the number of packets.
fn redirects(kind: &str, filter: Attributes<'_>) -> impl Iterator<Item = (u32, u32)> {
    // `TCA_U32_ACT` and so on.
    let actions = match kind {
        "u32" => Some(7),
        "fw" => Some(4),
        "flower" | "basic" => Some(3),
        "matchall" => Some(2),
        "bpf" => Some(1),
        _ => None,
    };
    let options = filter.nested(TCA_OPTIONS);
    let actions = actions.and_then(|kind| options?.nested(kind));
    let actions = actions.into_iter().flat_map(Attributes::iter);
    actions.filter_map(|(_, action)| {
        let action = Attributes(action);
        (action.text(ACTION_KIND)? == "mirred").then_some(())?;
        let parameters = action.nested(ACTION_OPTIONS)?.get(MIRRED_PARAMETERS)?;
        let is_redirect = REDIRECTS.contains(&number_at(parameters, MIRRED_ACTION)?);
        let basic = action.nested(ACTION_STATISTICS)?.get(STATISTICS_BASIC)?;
        let packets = number_at(basic, BASIC_PACKETS)?;
        is_redirect.then_some((number_at(parameters, MIRRED_INTERFACE)?, packets))
    })
}

fn header(index: u32, parent: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[INTERFACE..INTERFACE + 4].copy_from_slice(&index.to_ne_bytes());
    header[PARENT..PARENT + 4].copy_from_slice(&parent.to_ne_bytes());
    header
}

/// The number of dropped packets, if this is the qdisc on which the filters of an interface hang.
fn drops_of_filters(message: &[u8], index: u32) -> Option<u32> {
    let attributes = Attributes(message.get(HEADER..)?);
    let is_of_filters = matches!(attributes.text(TCA_KIND)?, "clsact" | "ingress");
    if !is_of_filters || number_at(message, INTERFACE)? != index {
        return None;
    }
    let queue = attributes
        .nested(TCA_STATS2)
        .and_then(|statistics| statistics.get(STATS_QUEUE));
    Some(queue.and_then(|queue| number_at(queue, DROPS)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Writer;

    #[test]
    fn drops_are_those_of_the_interface_with_filters() {
        let qdisc = |index, kind: &str| {
            let mut message = header(index, 0).to_vec();
            let mut writer = Writer::new(&mut message);
            writer.text(TCA_KIND, kind);
            writer.nested(TCA_STATS2, |statistics| {
                statistics.bytes(STATS_QUEUE, &[0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0]);
            });
            message
        };
        let five = u32::from_ne_bytes([5, 0, 0, 0]);
        assert_eq!(drops_of_filters(&qdisc(7, "clsact"), 7), Some(five));
        assert_eq!(drops_of_filters(&qdisc(7, "ingress"), 7), Some(five));
        assert_eq!(drops_of_filters(&qdisc(8, "clsact"), 7), None);
        assert_eq!(drops_of_filters(&qdisc(7, "noqueue"), 7), None);
        assert_eq!(drops_of_filters(&header(7, 0), 7), None);
        assert_eq!(drops_of_filters(&[0; HEADER - 1], 7), None);
    }

    #[test]
    fn redirected_packets_are_counted_by_interface() {
        let filter = |action: u32, kind: &str| {
            let mut message = Vec::new();
            let mut parameters = [0; 28];
            parameters[MIRRED_ACTION..MIRRED_INTERFACE].copy_from_slice(&action.to_ne_bytes());
            parameters[MIRRED_INTERFACE..].copy_from_slice(&9_u32.to_ne_bytes());
            let mut basic = [0; 16];
            basic[BASIC_PACKETS..12].copy_from_slice(&5_u32.to_ne_bytes());
            Writer::new(&mut message).nested(TCA_OPTIONS, |options| {
                options.nested(7, |actions| {
                    actions.nested(1, |action| {
                        action.text(ACTION_KIND, kind);
                        action.nested(ACTION_OPTIONS, |it| {
                            it.bytes(MIRRED_PARAMETERS, &parameters);
                        });
                        action.nested(ACTION_STATISTICS, |it| it.bytes(STATISTICS_BASIC, &basic));
                    });
                });
            });
            message
        };
        let of = |action, kind: &str| {
            let filter = filter(action, kind);
            redirects("u32", Attributes(&filter)).collect::<Vec<_>>()
        };
        assert_eq!(of(1, "mirred"), [(9, 5)]);
        assert_eq!(of(2, "mirred"), [], "a copy");
        assert_eq!(of(1, "gact"), []);
    }
}
