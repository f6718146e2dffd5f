//! Numbers of the conntrack netlink interface. Source: the kernel's `include/uapi/linux/netfilter/nfnetlink_conntrack.h`,
//! `nf_conntrack_common.h`, and for the filter `net/netfilter/nf_internals.h`; names without their prefix `CTA_`.

/// `IPCTNL_MSG_CT_GET`
pub(super) const GET: u8 = 1;
/// `IPCTNL_MSG_CT_DELETE`
pub(super) const DELETE: u8 = 2;

pub(super) const TUPLE_ORIG: u16 = 1;
pub(super) const TUPLE_REPLY: u16 = 2;
pub(super) const STATUS: u16 = 3;
pub(super) const PROTOINFO: u16 = 4;
pub(super) const ID: u16 = 12;
pub(super) const ZONE: u16 = 18;
pub(super) const FILTER: u16 = 25;
pub(super) const STATUS_MASK: u16 = 26;

pub(super) const TUPLE_IP: u16 = 1;
pub(super) const TUPLE_PROTO: u16 = 2;

pub(super) const IP_V4_SRC: u16 = 1;
pub(super) const IP_V4_DST: u16 = 2;
pub(super) const IP_V6_SRC: u16 = 3;
pub(super) const IP_V6_DST: u16 = 4;

pub(super) const PROTO_NUM: u16 = 1;
pub(super) const PROTO_SRC_PORT: u16 = 2;
pub(super) const PROTO_DST_PORT: u16 = 3;

pub(super) const FILTER_ORIG_FLAGS: u16 = 1;
/// `CTA_FILTER_F_CTA_PROTO_NUM`
pub(super) const FILTER_PROTO_NUM: u32 = 1 << 3;

pub(super) const PROTOINFO_TCP: u16 = 1;
/// `CTA_PROTOINFO_TCP_STATE`
pub(super) const PROTOINFO_STATE: u16 = 1;

/// `IPS_SEEN_REPLY`
pub(super) const SEEN_REPLY: u32 = 1 << 1;
/// `IPS_ASSURED`: both sides have spoken as the protocol demands.
pub(super) const ASSURED: u32 = 1 << 2;

/// `TCP_CONNTRACK_SYN_SENT`, and `TCP_CONNTRACK_SYN_SENT2` when both sides have sent one.
pub(super) const TCP_SYN_SENT: [u8; 2] = [1, 9];
