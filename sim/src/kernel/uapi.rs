//! Numbers of the kernel's netlink interfaces. Source: `include/uapi/linux/netlink.h`, `netfilter/nfnetlink.h`,
//! `netfilter/nf_tables.h` and `netfilter/nfnetlink_conntrack.h`; names without the kernel's prefixes.

pub(crate) const NLM_F_REQUEST: u16 = 0x1;
pub(crate) const NLM_F_MULTI: u16 = 0x2;
pub(crate) const NLM_F_ACK: u16 = 0x4;
pub(crate) const NLM_F_DUMP_INTR: u16 = 0x10;
pub(crate) const NLM_F_DUMP: u16 = 0x300;
/// Flags of messages that create an object.
pub(crate) const NLM_F_REPLACE: u16 = 0x100;
pub(crate) const NLM_F_EXCL: u16 = 0x200;
pub(crate) const NLM_F_CREATE: u16 = 0x400;
pub(crate) const NLM_F_APPEND: u16 = 0x800;
/// Flags of messages that delete an object: only if it is empty.
pub(crate) const NLM_F_NONREC: u16 = 0x100;
/// Flags of answers.
pub(crate) const NLM_F_CAPPED: u16 = 0x100;
pub(crate) const NLM_F_ACK_TLVS: u16 = 0x200;

pub(crate) const NLMSG_ERROR: u16 = 2;
pub(crate) const NLMSG_DONE: u16 = 3;
pub(crate) const NLMSG_MIN_TYPE: u16 = 0x10;
pub(crate) const NLMSGERR_ATTR_OFFS: u16 = 2;

pub(crate) const SUBSYS_CTNETLINK: u8 = 1;
pub(crate) const SUBSYS_NFTABLES: u8 = 10;
/// The number of nfnetlink subsystems.
pub(crate) const SUBSYS_COUNT: u16 = 13;
pub(crate) const BATCH_BEGIN: u16 = 0x10;
pub(crate) const BATCH_END: u16 = 0x11;
pub(crate) const BATCH_GENID: u16 = 1;

pub(crate) const NFPROTO_UNSPEC: u8 = 0;
pub(crate) const NFPROTO_INET: u8 = 1;
pub(crate) const NFPROTO_IPV4: u8 = 2;
pub(crate) const NFPROTO_IPV6: u8 = 10;

/// Kinds of nf_tables messages.
pub(crate) mod msg {
    pub(crate) const NEWTABLE: u8 = 0;
    pub(crate) const GETTABLE: u8 = 1;
    pub(crate) const DELTABLE: u8 = 2;
    pub(crate) const NEWCHAIN: u8 = 3;
    pub(crate) const GETCHAIN: u8 = 4;
    pub(crate) const DELCHAIN: u8 = 5;
    pub(crate) const NEWRULE: u8 = 6;
    pub(crate) const GETRULE: u8 = 7;
    pub(crate) const DELRULE: u8 = 8;
    pub(crate) const NEWSET: u8 = 9;
    pub(crate) const GETSET: u8 = 10;
    pub(crate) const DELSET: u8 = 11;
    pub(crate) const NEWSETELEM: u8 = 12;
    pub(crate) const GETSETELEM: u8 = 13;
    pub(crate) const DELSETELEM: u8 = 14;
    pub(crate) const NEWGEN: u8 = 15;
    pub(crate) const GETGEN: u8 = 16;
    /// The number of kinds.
    pub(crate) const MAX: u8 = 34;
    pub(crate) const DESTROYTABLE: u8 = 26;
    pub(crate) const DESTROYCHAIN: u8 = 27;
    pub(crate) const DESTROYRULE: u8 = 28;
    pub(crate) const DESTROYSET: u8 = 29;
    pub(crate) const DESTROYSETELEM: u8 = 30;
}

/// `NFTA_LIST_ELEM`
pub(crate) const LIST_ELEM: u16 = 1;

pub(crate) mod table {
    pub(crate) const NAME: u16 = 1;
    pub(crate) const FLAGS: u16 = 2;
    pub(crate) const USE: u16 = 3;
    pub(crate) const HANDLE: u16 = 4;
    pub(crate) const PAD: u16 = 5;
    pub(crate) const USERDATA: u16 = 6;
    pub(crate) const OWNER: u16 = 7;

    pub(crate) const F_DORMANT: u32 = 0x1;
    pub(crate) const F_OWNER: u32 = 0x2;
    pub(crate) const F_PERSIST: u32 = 0x4;
    pub(crate) const F_MASK: u32 = F_DORMANT | F_OWNER | F_PERSIST;
}

pub(crate) mod chain {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const HANDLE: u16 = 2;
    pub(crate) const NAME: u16 = 3;
    pub(crate) const HOOK: u16 = 4;
    pub(crate) const POLICY: u16 = 5;
    pub(crate) const USE: u16 = 6;
    pub(crate) const TYPE: u16 = 7;
    pub(crate) const PAD: u16 = 9;
    pub(crate) const FLAGS: u16 = 10;

    pub(crate) const HOOK_NUM: u16 = 1;
    pub(crate) const HOOK_PRIORITY: u16 = 2;

    /// The kernel reports this flag for each base chain.
    pub(crate) const F_BASE: u32 = 0x1;
    pub(crate) const F_MASK: u32 = 0x7;
}

pub(crate) mod rule {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const CHAIN: u16 = 2;
    pub(crate) const HANDLE: u16 = 3;
    pub(crate) const EXPRESSIONS: u16 = 4;
    pub(crate) const POSITION: u16 = 6;
    pub(crate) const USERDATA: u16 = 7;
    pub(crate) const PAD: u16 = 8;

    pub(crate) const MAX_EXPRESSIONS: usize = 128;
}

pub(crate) mod set {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const NAME: u16 = 2;
    pub(crate) const FLAGS: u16 = 3;
    pub(crate) const KEY_TYPE: u16 = 4;
    pub(crate) const KEY_LEN: u16 = 5;
    pub(crate) const DATA_TYPE: u16 = 6;
    pub(crate) const DATA_LEN: u16 = 7;
    pub(crate) const DESC: u16 = 9;
    pub(crate) const ID: u16 = 10;
    pub(crate) const TIMEOUT: u16 = 11;
    pub(crate) const USERDATA: u16 = 13;
    pub(crate) const PAD: u16 = 14;
    pub(crate) const HANDLE: u16 = 16;
    pub(crate) const EXPR: u16 = 17;

    pub(crate) const DESC_SIZE: u16 = 1;
    pub(crate) const DESC_CONCAT: u16 = 2;
    pub(crate) const FIELD_LEN: u16 = 1;

    pub(crate) const F_ANONYMOUS: u32 = 0x1;
    pub(crate) const F_CONSTANT: u32 = 0x2;
    pub(crate) const F_INTERVAL: u32 = 0x4;
    pub(crate) const F_MAP: u32 = 0x8;
    pub(crate) const F_TIMEOUT: u32 = 0x10;
    pub(crate) const F_EVAL: u32 = 0x20;
    pub(crate) const F_OBJECT: u32 = 0x40;
    pub(crate) const F_CONCAT: u32 = 0x80;
    pub(crate) const F_MASK: u32 = 0x1ff;

    /// Names with a `%d` are shorter than this: `NFT_SET_MAX_ANONLEN`.
    pub(crate) const MAX_ANONYMOUS_NAME: usize = 16;
}

pub(crate) mod elem {
    pub(crate) const LIST_TABLE: u16 = 1;
    pub(crate) const LIST_SET: u16 = 2;
    pub(crate) const LIST_ELEMENTS: u16 = 3;
    pub(crate) const LIST_SET_ID: u16 = 4;

    pub(crate) const KEY: u16 = 1;
    pub(crate) const DATA: u16 = 2;
    pub(crate) const FLAGS: u16 = 3;
    pub(crate) const TIMEOUT: u16 = 4;
    pub(crate) const EXPIRATION: u16 = 5;
    pub(crate) const USERDATA: u16 = 6;
    pub(crate) const EXPR: u16 = 7;
    pub(crate) const PAD: u16 = 8;
    pub(crate) const OBJREF: u16 = 9;
    pub(crate) const KEY_END: u16 = 10;
    pub(crate) const EXPRESSIONS: u16 = 11;

    pub(crate) const F_INTERVAL_END: u32 = 0x1;
    pub(crate) const F_CATCHALL: u32 = 0x2;
}

pub(crate) mod data {
    pub(crate) const VALUE: u16 = 1;
    pub(crate) const VERDICT: u16 = 2;
    pub(crate) const VERDICT_CODE: u16 = 1;
    pub(crate) const VERDICT_CHAIN: u16 = 2;

    /// The data type of verdicts.
    pub(crate) const TYPE_VERDICT: u32 = 0xffff_ff00;
    /// Types from this one on are reserved for the kernel.
    pub(crate) const TYPE_RESERVED: u32 = 0xffff_ff00;
    pub(crate) const MAX_LEN: usize = 64;
    /// `sizeof(struct nft_verdict)`
    pub(crate) const VERDICT_LEN: u32 = 16;
}

pub(crate) mod verdict {
    pub(crate) const DROP: i32 = 0;
    pub(crate) const ACCEPT: i32 = 1;
    pub(crate) const CONTINUE: i32 = -1;
    pub(crate) const BREAK: i32 = -2;
    pub(crate) const JUMP: i32 = -3;
    pub(crate) const GOTO: i32 = -4;
    pub(crate) const RETURN: i32 = -5;
}

pub(crate) mod generation {
    pub(crate) const ID: u16 = 1;
    pub(crate) const PROC_PID: u16 = 2;
    pub(crate) const PROC_NAME: u16 = 3;
}

/// Attributes of expressions.
pub(crate) mod expr {
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DATA: u16 = 2;

    pub(crate) const IMMEDIATE_DREG: u16 = 1;
    pub(crate) const IMMEDIATE_DATA: u16 = 2;

    pub(crate) const BITWISE_SREG: u16 = 1;
    pub(crate) const BITWISE_DREG: u16 = 2;
    pub(crate) const BITWISE_LEN: u16 = 3;
    pub(crate) const BITWISE_MASK: u16 = 4;
    pub(crate) const BITWISE_XOR: u16 = 5;
    pub(crate) const BITWISE_OP: u16 = 6;

    pub(crate) const CMP_SREG: u16 = 1;
    pub(crate) const CMP_OP: u16 = 2;
    pub(crate) const CMP_DATA: u16 = 3;

    pub(crate) const LOOKUP_SET: u16 = 1;
    pub(crate) const LOOKUP_SREG: u16 = 2;
    pub(crate) const LOOKUP_DREG: u16 = 3;
    pub(crate) const LOOKUP_SET_ID: u16 = 4;
    pub(crate) const LOOKUP_FLAGS: u16 = 5;
    pub(crate) const LOOKUP_F_INV: u32 = 1;

    pub(crate) const DYNSET_SET_NAME: u16 = 1;
    pub(crate) const DYNSET_SET_ID: u16 = 2;
    pub(crate) const DYNSET_OP: u16 = 3;
    pub(crate) const DYNSET_SREG_KEY: u16 = 4;
    pub(crate) const DYNSET_SREG_DATA: u16 = 5;
    pub(crate) const DYNSET_TIMEOUT: u16 = 6;
    pub(crate) const DYNSET_FLAGS: u16 = 9;
    pub(crate) const DYNSET_OP_UPDATE: u32 = 1;
    pub(crate) const DYNSET_OP_DELETE: u32 = 2;

    pub(crate) const PAYLOAD_DREG: u16 = 1;
    pub(crate) const PAYLOAD_BASE: u16 = 2;
    pub(crate) const PAYLOAD_OFFSET: u16 = 3;
    pub(crate) const PAYLOAD_LEN: u16 = 4;
    pub(crate) const NETWORK_HEADER: u32 = 1;
    pub(crate) const TRANSPORT_HEADER: u32 = 2;

    pub(crate) const META_DREG: u16 = 1;
    pub(crate) const META_KEY: u16 = 2;
    pub(crate) const META_SREG: u16 = 3;
    pub(crate) const META_PRIORITY: u32 = 2;
    pub(crate) const META_MARK: u32 = 3;
    pub(crate) const META_IIFNAME: u32 = 6;
    pub(crate) const META_OIFNAME: u32 = 7;
    pub(crate) const META_NFPROTO: u32 = 15;
    pub(crate) const META_L4PROTO: u32 = 16;

    pub(crate) const CT_DREG: u16 = 1;
    pub(crate) const CT_KEY: u16 = 2;
    pub(crate) const CT_DIRECTION: u16 = 3;
    pub(crate) const CT_STATE: u32 = 0;
    pub(crate) const CT_STATUS: u32 = 2;
    pub(crate) const CT_PROTOCOL: u32 = 10;
    pub(crate) const CT_PROTO_DST: u32 = 12;
    pub(crate) const CT_DST_IP: u32 = 20;
    pub(crate) const CT_DST_IP6: u32 = 22;

    pub(crate) const HASH_SREG: u16 = 1;
    pub(crate) const HASH_DREG: u16 = 2;
    pub(crate) const HASH_LEN: u16 = 3;
    pub(crate) const HASH_MODULUS: u16 = 4;
    pub(crate) const HASH_SEED: u16 = 5;
    pub(crate) const HASH_OFFSET: u16 = 6;
    pub(crate) const HASH_TYPE: u16 = 7;

    pub(crate) const NUMGEN_DREG: u16 = 1;
    pub(crate) const NUMGEN_MODULUS: u16 = 2;
    pub(crate) const NUMGEN_TYPE: u16 = 3;
    pub(crate) const NUMGEN_OFFSET: u16 = 4;
    pub(crate) const NUMGEN_RANDOM: u32 = 1;

    pub(crate) const FIB_DREG: u16 = 1;
    pub(crate) const FIB_RESULT: u16 = 2;
    pub(crate) const FIB_FLAGS: u16 = 3;
    pub(crate) const FIB_RESULT_ADDRTYPE: u32 = 3;
    pub(crate) const FIB_F_SADDR: u32 = 1;
    pub(crate) const FIB_F_DADDR: u32 = 2;

    pub(crate) const NAT_TYPE: u16 = 1;
    pub(crate) const NAT_FAMILY: u16 = 2;
    pub(crate) const NAT_REG_ADDR_MIN: u16 = 3;
    pub(crate) const NAT_REG_ADDR_MAX: u16 = 4;
    pub(crate) const NAT_REG_PROTO_MIN: u16 = 5;
    pub(crate) const NAT_REG_PROTO_MAX: u16 = 6;
    pub(crate) const NAT_FLAGS: u16 = 7;
    pub(crate) const NAT_SNAT: u32 = 0;
    pub(crate) const NAT_DNAT: u32 = 1;

    pub(crate) const MASQ_FLAGS: u16 = 1;

    pub(crate) const REDIR_PROTO_MIN: u16 = 1;
    pub(crate) const REDIR_FLAGS: u16 = 3;

    pub(crate) const REJECT_TYPE: u16 = 1;
    pub(crate) const REJECT_ICMP_CODE: u16 = 2;
    pub(crate) const REJECT_ICMP_UNREACH: u32 = 0;
    pub(crate) const REJECT_TCP_RST: u32 = 1;
    pub(crate) const REJECT_ICMPX_UNREACH: u32 = 2;

    pub(crate) const COUNTER_BYTES: u16 = 1;
    pub(crate) const COUNTER_PACKETS: u16 = 2;
}
