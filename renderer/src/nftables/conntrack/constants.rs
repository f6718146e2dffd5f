//! Numbers of the conntrack netlink interface. Source: the kernel's `include/uapi/linux/netfilter/nfnetlink_conntrack.h`,
//! `nf_conntrack_common.h`, and for the filter `net/netfilter/nf_internals.h`; names without their prefix `CTA_`.

/// `IPCTNL_MSG_CT_GET`
pub(crate) const GET: u8 = 1;
/// `IPCTNL_MSG_CT_DELETE`
pub(crate) const DELETE: u8 = 2;

pub(crate) const TUPLE_ORIG: u16 = 1;
pub(crate) const TUPLE_REPLY: u16 = 2;
pub(crate) const STATUS: u16 = 3;
pub(crate) const PROTOINFO: u16 = 4;
pub(crate) const TIMEOUT: u16 = 7;
pub(crate) const MARK: u16 = 8;
pub(crate) const COUNTERS_ORIG: u16 = 9;
pub(crate) const COUNTERS_REPLY: u16 = 10;
pub(crate) const ID: u16 = 12;
pub(crate) const ZONE: u16 = 18;
pub(crate) const FILTER: u16 = 25;
pub(crate) const STATUS_MASK: u16 = 26;

pub(crate) const TUPLE_IP: u16 = 1;
pub(crate) const TUPLE_PROTO: u16 = 2;

pub(crate) const IP_V4_SRC: u16 = 1;
pub(crate) const IP_V4_DST: u16 = 2;
pub(crate) const IP_V6_SRC: u16 = 3;
pub(crate) const IP_V6_DST: u16 = 4;

pub(crate) const PROTO_NUM: u16 = 1;
pub(crate) const PROTO_SRC_PORT: u16 = 2;
pub(crate) const PROTO_DST_PORT: u16 = 3;

pub(crate) const COUNTERS_PACKETS: u16 = 1;
pub(crate) const COUNTERS_BYTES: u16 = 2;

pub(crate) const FILTER_ORIG_FLAGS: u16 = 1;
pub(crate) const FILTER_REPLY_FLAGS: u16 = 2;
/// `CTA_FILTER_F_CTA_IP_SRC`
pub(crate) const FILTER_IP_SRC: u32 = 1;
/// `CTA_FILTER_F_CTA_IP_DST`
pub(crate) const FILTER_IP_DST: u32 = 1 << 1;
/// `CTA_FILTER_F_CTA_PROTO_NUM`
pub(crate) const FILTER_PROTO_NUM: u32 = 1 << 3;
/// `CTA_FILTER_F_CTA_PROTO_SRC_PORT`
pub(crate) const FILTER_PROTO_SRC_PORT: u32 = 1 << 4;
/// `CTA_FILTER_F_CTA_PROTO_DST_PORT`
pub(crate) const FILTER_PROTO_DST_PORT: u32 = 1 << 5;

pub(crate) const PROTOINFO_TCP: u16 = 1;
/// `CTA_PROTOINFO_TCP_STATE`
pub(crate) const PROTOINFO_STATE: u16 = 1;

/// `IPS_SEEN_REPLY`
pub(crate) const SEEN_REPLY: u32 = 1 << 1;
/// `IPS_ASSURED`: both sides have spoken as the protocol demands.
pub(crate) const ASSURED: u32 = 1 << 2;
/// `IPS_SRC_NAT` and `IPS_DST_NAT`
pub(crate) const SOURCE_TRANSLATED: u32 = 1 << 4;
pub(crate) const DESTINATION_TRANSLATED: u32 = 1 << 5;

/// `TCP_CONNTRACK_SYN_SENT`, and `TCP_CONNTRACK_SYN_SENT2` when both sides have sent one.
pub(crate) const TCP_SYN_SENT: [u8; 2] = [1, 9];
