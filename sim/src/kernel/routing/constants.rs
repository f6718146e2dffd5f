//! The constants of routing netlink: message types, flags, sizes of headers, and the interfaces of the model. Sources:
//! `include/uapi/linux/rtnetlink.h` and `netlink.h`.

pub(super) const NEWLINK: u16 = 16;
pub(super) const NEWADDR: u16 = 20;
pub(super) const DELADDR: u16 = 21;
pub(super) const GETADDR: u16 = 22;
pub(super) const NEWROUTE: u16 = 24;
pub(super) const DELROUTE: u16 = 25;
pub(super) const GETROUTE: u16 = 26;
pub(super) const NEWRULE: u16 = 32;
pub(super) const DELRULE: u16 = 33;
pub(super) const GETRULE: u16 = 34;
pub(super) const NEWNEXTHOP: u16 = 104;
pub(super) const DELNEXTHOP: u16 = 105;
pub(super) const GETNEXTHOP: u16 = 106;

/// For additions: an existing object is replaced, is an error, or a missing one is created.
pub(super) const NLM_F_REPLACE: u16 = 0x100;
pub(super) const NLM_F_EXCL: u16 = 0x200;
pub(super) const NLM_F_CREATE: u16 = 0x400;

pub(super) const IFF_UP: u32 = 1;
pub(super) const IFA_LOCAL: u16 = 2;
/// The sizes of `struct ifaddrmsg`, `struct rtmsg`, `struct fib_rule_hdr` and `struct nhmsg`.
pub(super) const ADDRESS_HEADER: usize = 8;
pub(super) const ROUTE_HEADER: usize = 12;
pub(super) const RULE_HEADER: usize = 12;
pub(super) const NEXTHOP_HEADER: usize = 8;

/// The interface to other hosts.
pub(super) const EXTERNAL: u32 = 2;
/// The interface of the local pods.
pub(super) const PODS: u32 = 7;
pub(super) const LOOPBACK: u32 = 1;
