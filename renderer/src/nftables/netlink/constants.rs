//! Numbers of the nf_tables netlink interface. Source: the kernel's `include/uapi/linux/netfilter/nf_tables.h` and
//! `nfnetlink.h`; the names are the kernel's without their prefix `NFTA_` or `NFT_`.

pub(crate) const NFNL_SUBSYS_NFTABLES: u8 = 10;
pub(crate) const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
pub(crate) const NFNL_MSG_BATCH_END: u16 = 0x11;

pub(crate) const NFPROTO_UNSPEC: u8 = 0;
pub(crate) const NFPROTO_INET: u8 = 1;
pub(crate) const NFPROTO_IPV4: u8 = 2;
pub(crate) const NFPROTO_NETDEV: u8 = 5;
pub(crate) const NFPROTO_BRIDGE: u8 = 7;
pub(crate) const NFPROTO_IPV6: u8 = 10;

/// Message types.
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
    pub(crate) const NEWOBJ: u8 = 18;
    pub(crate) const GETOBJ: u8 = 19;
}

/// Attributes that are nothing but a list carry their items under this type.
pub(crate) const LIST_ELEM: u16 = 1;

/// The group with notifications of every change: `NFNLGRP_NFTABLES`.
pub(crate) const NFNLGRP_NFTABLES: u32 = 7;

/// The generation of the ruleset of a network namespace: increased by each transaction.
pub(crate) mod generation {
    pub(crate) const ID: u16 = 1;
    pub(crate) const PROC_PID: u16 = 2;
    pub(crate) const PROC_NAME: u16 = 3;
}

pub(crate) mod table {
    pub(crate) const NAME: u16 = 1;
    pub(crate) const FLAGS: u16 = 2;
    pub(crate) const HANDLE: u16 = 4;
    /// The table is dormant: its rules are inactive.
    pub(crate) const FLAG_DORMANT: u32 = 0x1;
    /// The port of the socket that owns the table.
    pub(crate) const OWNER: u16 = 7;
    /// The table ends with the socket of its owner, unless it is to outlive it.
    pub(crate) const FLAG_OWNER: u32 = 0x2;
    /// The table outlives its owner.
    pub(crate) const FLAG_PERSIST: u32 = 0x4;
    pub(crate) const OWNED: u32 = FLAG_OWNER | FLAG_PERSIST;
}

pub(crate) mod chain {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const NAME: u16 = 3;
    pub(crate) const HOOK: u16 = 4;
    pub(crate) const POLICY: u16 = 5;
    pub(crate) const TYPE: u16 = 7;
    pub(crate) const HOOK_HOOKNUM: u16 = 1;
    pub(crate) const HOOK_PRIORITY: u16 = 2;
    /// The device of a chain of the family netdev, or of inet at ingress.
    pub(crate) const HOOK_DEV: u16 = 3;
    /// A list of them.
    pub(crate) const HOOK_DEVS: u16 = 4;
    /// `NF_ACCEPT`
    pub(crate) const POLICY_ACCEPT: u32 = 1;
}

pub(crate) mod rule {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const CHAIN: u16 = 2;
    /// A number of 64 bits.
    pub(crate) const HANDLE: u16 = 3;
    pub(crate) const EXPRESSIONS: u16 = 4;
    pub(crate) const USERDATA: u16 = 7;
    /// Kind of the part of the user data that is the comment: libnftnl's `NFTNL_UDATA_RULE_COMMENT`.
    pub(crate) const USERDATA_COMMENT: u8 = 0;
    pub(crate) const EXPR_NAME: u16 = 1;
    pub(crate) const EXPR_DATA: u16 = 2;
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
    /// The type of the objects of a map to objects.
    pub(crate) const OBJ_TYPE: u16 = 15;
    pub(crate) const HANDLE: u16 = 16;
    pub(crate) const EXPR: u16 = 17;
    pub(crate) const DESC_SIZE: u16 = 1;
    pub(crate) const DESC_CONCAT: u16 = 2;
    pub(crate) const FIELD_LEN: u16 = 1;

    /// nft's type of keys that are plain numbers, as `numgen` gives them.
    pub(crate) const KEY_TYPE_INTEGER: u32 = 4;
    pub(crate) const FLAG_ANONYMOUS: u32 = 0x1;
    pub(crate) const FLAG_CONSTANT: u32 = 0x2;
    pub(crate) const FLAG_INTERVAL: u32 = 0x4;
    pub(crate) const FLAG_MAP: u32 = 0x8;
    pub(crate) const FLAG_TIMEOUT: u32 = 0x10;
    /// Rules may update it: `NFT_SET_EVAL`, nft's "dynamic".
    pub(crate) const FLAG_EVAL: u32 = 0x20;
    pub(crate) const FLAG_CONCAT: u32 = 0x80;
}

pub(crate) mod elem {
    pub(crate) const LIST_TABLE: u16 = 1;
    pub(crate) const LIST_SET: u16 = 2;
    pub(crate) const LIST_ELEMENTS: u16 = 3;
    pub(crate) const LIST_SET_ID: u16 = 4;
    pub(crate) const KEY: u16 = 1;
    pub(crate) const DATA: u16 = 2;
    pub(crate) const FLAGS: u16 = 3;
    /// The milliseconds until it expires: 64 bits.
    pub(crate) const EXPIRATION: u16 = 5;
    /// Several of [`EXPR`].
    pub(crate) const EXPRESSIONS: u16 = 11;
    /// The element that is found if no other is.
    pub(crate) const FLAG_CATCHALL: u32 = 0x2;
    /// The last key of an interval of concatenations; [`KEY`] is the first.
    pub(crate) const KEY_END: u16 = 10;
    pub(crate) const USERDATA: u16 = 6;
    /// Evaluated for each packet that matches the element.
    pub(crate) const EXPR: u16 = 7;
    pub(crate) const FLAG_INTERVAL_END: u32 = 0x1;
    /// User data of an interval that has no end: libnftnl's `NFTNL_UDATA_SET_ELEM_FLAGS`, its length, and nft's
    /// `SET_ELEM_F_INTERVAL_OPEN` in host order. nft lists such an interval wrongly without it.
    pub(crate) const OPEN_INTERVAL: [u8; 6] = {
        let [a, b, c, d] = 1_u32.to_ne_bytes();
        [1, 4, a, b, c, d]
    };
}

/// Stateful objects, and the one that gives connections timeouts of their own.
pub(crate) mod object {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const NAME: u16 = 2;
    pub(crate) const TYPE: u16 = 3;
    pub(crate) const DATA: u16 = 4;
    pub(crate) const TYPE_QUOTA: u32 = 2;
    pub(crate) const TYPE_LIMIT: u32 = 4;
    pub(crate) const TYPE_CONNLIMIT: u32 = 5;
    pub(crate) const TYPE_CT_TIMEOUT: u32 = 7;
    pub(crate) const TYPE_SYNPROXY: u32 = 10;
    pub(crate) const CT_TIMEOUT_L3PROTO: u16 = 1;
    pub(crate) const CT_TIMEOUT_L4PROTO: u16 = 2;
    pub(crate) const CT_TIMEOUT_DATA: u16 = 3;
    /// `CTA_TIMEOUT_TCP_SYN_SENT`, in seconds.
    pub(crate) const CT_TIMEOUT_SYN_SENT: u16 = 1;
}

/// Attributes of the expression `counter`: numbers of 64 bits.
pub(crate) mod counter {
    pub(crate) const PACKETS: u16 = 2;
}

pub(crate) mod data {
    pub(crate) const VALUE: u16 = 1;
    pub(crate) const VERDICT: u16 = 2;
    pub(crate) const VERDICT_CODE: u16 = 1;
    pub(crate) const VERDICT_CHAIN: u16 = 2;
}

/// Verdict codes; the negative ones are the kernel's `NFT_JUMP`, `NFT_GOTO`.
pub(crate) mod verdict {
    /// Of the code the part that is the verdict; with a queue the rest is its number.
    pub(crate) const MASK: i32 = 0xff;
    pub(crate) const QUEUE: i32 = 3;
    pub(crate) const CONTINUE: i32 = -1;
    pub(crate) const BREAK: i32 = -2;
    pub(crate) const RETURN: i32 = -5;
    pub(crate) const DROP: i32 = 0;
    pub(crate) const ACCEPT: i32 = 1;
    pub(crate) const JUMP: i32 = -3;
    pub(crate) const GOTO: i32 = -4;
    /// The type of the data of maps to verdicts.
    pub(crate) const DATA_TYPE: u32 = 0xffff_ff00;
}

/// Attributes of the expressions, one group per expression.
pub(crate) mod expr {
    pub(crate) const BITWISE_SREG: u16 = 1;
    pub(crate) const BITWISE_DREG: u16 = 2;
    pub(crate) const BITWISE_LEN: u16 = 3;
    pub(crate) const BITWISE_MASK: u16 = 4;
    pub(crate) const BITWISE_XOR: u16 = 5;
    pub(crate) const BITWISE_OP: u16 = 6;
    pub(crate) const BITWISE_DATA: u16 = 7;
    pub(crate) const BITWISE_MASK_XOR: u32 = 0;
    pub(crate) const BITWISE_LSHIFT: u32 = 1;
    pub(crate) const BITWISE_RSHIFT: u32 = 2;

    pub(crate) const BYTEORDER_SREG: u16 = 1;
    pub(crate) const BYTEORDER_DREG: u16 = 2;
    pub(crate) const BYTEORDER_LEN: u16 = 4;
    pub(crate) const BYTEORDER_SIZE: u16 = 5;

    pub(crate) const CMP_SREG: u16 = 1;
    pub(crate) const CMP_OP: u16 = 2;
    pub(crate) const CMP_DATA: u16 = 3;
    pub(crate) const CMP_EQ: u32 = 0;
    pub(crate) const CMP_NEQ: u32 = 1;
    pub(crate) const CMP_LT: u32 = 2;
    pub(crate) const CMP_LTE: u32 = 3;
    pub(crate) const CMP_GT: u32 = 4;
    pub(crate) const CMP_GTE: u32 = 5;

    pub(crate) const CONNLIMIT_FLAGS: u16 = 2;
    pub(crate) const LIMIT_FLAGS: u16 = 5;
    pub(crate) const QUOTA_FLAGS: u16 = 2;
    /// Of limit, quota and connlimit: the rule matches packets beyond it.
    pub(crate) const LIMIT_FLAG_INV: u32 = 1;

    pub(crate) const CT_DREG: u16 = 1;
    pub(crate) const CT_KEY: u16 = 2;
    pub(crate) const CT_DIRECTION: u16 = 3;
    pub(crate) const CT_SREG: u16 = 4;
    pub(crate) const CT_STATE: u32 = 0;
    pub(crate) const CT_STATUS: u32 = 2;
    pub(crate) const CT_MARK: u32 = 3;
    pub(crate) const CT_L3PROTOCOL: u32 = 7;
    pub(crate) const CT_SRC: u32 = 8;
    pub(crate) const CT_DST: u32 = 9;
    pub(crate) const CT_PROTO_SRC: u32 = 11;
    pub(crate) const CT_ZONE: u32 = 17;
    pub(crate) const CT_SRC_IP: u32 = 19;
    pub(crate) const CT_SRC_IP6: u32 = 21;
    pub(crate) const CT_PROTOCOL: u32 = 10;
    pub(crate) const CT_PROTO_DST: u32 = 12;
    pub(crate) const CT_DST_IP: u32 = 20;
    pub(crate) const CT_DST_IP6: u32 = 22;
    /// Which of the connection's two directions the packet has.
    pub(crate) const CT_DIR: u32 = 1;
    pub(crate) const CT_DIR_ORIGINAL: u8 = 0;
    pub(crate) const CT_DIR_REPLY: u8 = 1;
    /// Bit of the connection state "invalid": `NF_CT_STATE_INVALID_BIT`.
    pub(crate) const CT_STATE_INVALID: u32 = 1;
    /// Bit of the connection state "established": `NF_CT_STATE_BIT(IP_CT_ESTABLISHED)`.
    pub(crate) const CT_STATE_ESTABLISHED: u32 = 1 << 1;
    /// Bit of packets that conntrack does not see: `NF_CT_STATE_UNTRACKED_BIT`.
    pub(crate) const CT_STATE_UNTRACKED: u32 = 1 << 6;
    /// Bit of the connection state "new": `NF_CT_STATE_BIT(IP_CT_NEW)`.
    pub(crate) const CT_STATE_NEW: u32 = 1 << 3;
    /// Bit of the connection state "related": `NF_CT_STATE_BIT(IP_CT_RELATED)`.
    pub(crate) const CT_STATE_RELATED: u32 = 1 << 2;
    /// `IPS_SEEN_REPLY`
    pub(crate) const CT_STATUS_SEEN_REPLY: u32 = 1 << 1;
    /// `IPS_ASSURED`: both sides have spoken as the protocol demands.
    pub(crate) const CT_STATUS_ASSURED: u32 = 1 << 2;
    /// `IPS_CONFIRMED`: the connection's first packet has passed all hooks.
    pub(crate) const CT_STATUS_CONFIRMED: u32 = 1 << 3;
    /// `IPS_SRC_NAT`
    pub(crate) const CT_STATUS_SNAT: u32 = 1 << 4;
    /// `IPS_DST_NAT`
    pub(crate) const CT_STATUS_DNAT: u32 = 1 << 5;

    pub(crate) const DYNSET_SET_NAME: u16 = 1;
    pub(crate) const DYNSET_OP: u16 = 3;
    pub(crate) const DYNSET_SREG_KEY: u16 = 4;
    pub(crate) const DYNSET_SREG_DATA: u16 = 5;
    pub(crate) const DYNSET_TIMEOUT: u16 = 6;
    pub(crate) const DYNSET_EXPR: u16 = 7;
    pub(crate) const DYNSET_FLAGS: u16 = 9;
    pub(crate) const DYNSET_EXPRESSIONS: u16 = 10;
    pub(crate) const DYNSET_FLAG_INV: u32 = 1;
    pub(crate) const DYNSET_OP_ADD: u32 = 0;
    pub(crate) const DYNSET_OP_UPDATE: u32 = 1;

    pub(crate) const EXTHDR_DREG: u16 = 1;
    pub(crate) const EXTHDR_TYPE: u16 = 2;
    pub(crate) const EXTHDR_FLAGS: u16 = 5;
    pub(crate) const EXTHDR_OP: u16 = 6;
    pub(crate) const EXTHDR_FLAG_PRESENT: u32 = 1;
    pub(crate) const EXTHDR_OP_IPV6: u32 = 0;
    pub(crate) const EXTHDR_OP_IPV4: u32 = 2;
    /// The option of TCP with the size of segments: `TCPOPT_MSS`.
    pub(crate) const TCP_OPTION_MAXSEG: u8 = 2;

    pub(crate) const FIB_DREG: u16 = 1;
    pub(crate) const FIB_RESULT: u16 = 2;
    pub(crate) const FIB_FLAGS: u16 = 3;
    pub(crate) const FIB_RESULT_OIF: u32 = 1;
    pub(crate) const FIB_RESULT_OIFNAME: u32 = 2;
    pub(crate) const FIB_RESULT_ADDRTYPE: u32 = 3;
    pub(crate) const FIB_FLAG_SADDR: u32 = 1;
    pub(crate) const FIB_FLAG_DADDR: u32 = 2;
    pub(crate) const FIB_FLAG_MARK: u32 = 4;
    pub(crate) const FIB_FLAG_IIF: u32 = 8;
    pub(crate) const FIB_FLAG_OIF: u32 = 16;
    pub(crate) const FIB_FLAG_PRESENT: u32 = 32;
    /// `RTN_LOCAL` of rtnetlink.h
    pub(crate) const ADDRTYPE_LOCAL: u32 = 2;

    pub(crate) const HASH_SREG: u16 = 1;
    pub(crate) const HASH_DREG: u16 = 2;
    pub(crate) const HASH_LEN: u16 = 3;
    pub(crate) const HASH_MODULUS: u16 = 4;
    pub(crate) const HASH_SEED: u16 = 5;
    pub(crate) const HASH_OFFSET: u16 = 6;
    pub(crate) const HASH_TYPE: u16 = 7;
    pub(crate) const HASH_JENKINS: u32 = 0;

    pub(crate) const IMMEDIATE_DREG: u16 = 1;
    pub(crate) const IMMEDIATE_DATA: u16 = 2;

    pub(crate) const LIMIT_RATE: u16 = 1;
    pub(crate) const LIMIT_UNIT: u16 = 2;
    pub(crate) const LIMIT_BURST: u16 = 3;

    pub(crate) const LOG_GROUP: u16 = 1;
    pub(crate) const LOG_SNAPLEN: u16 = 3;
    pub(crate) const LOG_QTHRESHOLD: u16 = 4;

    pub(crate) const LOOKUP_SET: u16 = 1;
    pub(crate) const LOOKUP_SREG: u16 = 2;
    pub(crate) const LOOKUP_DREG: u16 = 3;
    pub(crate) const LOOKUP_SET_ID: u16 = 4;
    pub(crate) const LOOKUP_FLAGS: u16 = 5;
    pub(crate) const LOOKUP_FLAG_INV: u32 = 1;

    pub(crate) const MASQ_FLAGS: u16 = 1;
    /// `NF_NAT_RANGE_PROTO_RANDOM_FULLY`
    pub(crate) const MASQ_FULLY_RANDOM: u32 = 0x10;

    pub(crate) const META_DREG: u16 = 1;
    pub(crate) const META_KEY: u16 = 2;
    pub(crate) const META_SREG: u16 = 3;
    pub(crate) const META_PROTOCOL: u32 = 1;
    pub(crate) const META_PRIORITY: u32 = 2;
    pub(crate) const META_MARK: u32 = 3;
    pub(crate) const META_IIF: u32 = 4;
    pub(crate) const META_OIF: u32 = 5;
    pub(crate) const META_IIFNAME: u32 = 6;
    pub(crate) const META_OIFNAME: u32 = 7;
    pub(crate) const META_IIFTYPE: u32 = 8;
    pub(crate) const META_OIFTYPE: u32 = 9;
    pub(crate) const META_SKUID: u32 = 10;
    pub(crate) const META_SKGID: u32 = 11;
    pub(crate) const META_NFTRACE: u32 = 12;
    pub(crate) const META_NFPROTO: u32 = 15;
    pub(crate) const META_L4PROTO: u32 = 16;
    pub(crate) const META_PKTTYPE: u32 = 19;

    pub(crate) const NAT_TYPE: u16 = 1;
    pub(crate) const NAT_FAMILY: u16 = 2;
    pub(crate) const NAT_REG_ADDR_MIN: u16 = 3;
    pub(crate) const NAT_REG_ADDR_MAX: u16 = 4;
    pub(crate) const NAT_REG_PROTO_MIN: u16 = 5;
    pub(crate) const NAT_REG_PROTO_MAX: u16 = 6;
    pub(crate) const NAT_FLAGS: u16 = 7;
    /// `NF_NAT_RANGE_PROTO_RANDOM_FULLY`
    pub(crate) const NAT_FULLY_RANDOM: u32 = 0x10;
    pub(crate) const NAT_TYPE_SNAT: u32 = 0;
    pub(crate) const NAT_TYPE_DNAT: u32 = 1;

    pub(crate) const NUMGEN_DREG: u16 = 1;
    pub(crate) const NUMGEN_MODULUS: u16 = 2;
    pub(crate) const NUMGEN_TYPE: u16 = 3;
    pub(crate) const NUMGEN_OFFSET: u16 = 4;
    pub(crate) const NUMGEN_RANDOM: u32 = 1;

    pub(crate) const OBJREF_IMM_TYPE: u16 = 1;
    pub(crate) const OBJREF_IMM_NAME: u16 = 2;
    pub(crate) const OBJREF_SET_SREG: u16 = 3;
    pub(crate) const OBJREF_SET_NAME: u16 = 4;

    pub(crate) const PAYLOAD_DREG: u16 = 1;
    pub(crate) const PAYLOAD_BASE: u16 = 2;
    pub(crate) const PAYLOAD_OFFSET: u16 = 3;
    pub(crate) const PAYLOAD_LEN: u16 = 4;
    pub(crate) const PAYLOAD_SREG: u16 = 5;
    pub(crate) const PAYLOAD_LINK_HEADER: u32 = 0;
    pub(crate) const PAYLOAD_NETWORK_HEADER: u32 = 1;
    pub(crate) const PAYLOAD_TRANSPORT_HEADER: u32 = 2;

    pub(crate) const QUEUE_FLAGS: u16 = 3;
    pub(crate) const QUEUE_FLAG_BYPASS: u16 = 1;

    pub(crate) const RANGE_SREG: u16 = 1;
    pub(crate) const RANGE_OP: u16 = 2;
    pub(crate) const RANGE_FROM: u16 = 3;
    pub(crate) const RANGE_TO: u16 = 4;
    pub(crate) const RANGE_NEQ: u32 = 1;

    pub(crate) const REDIR_PROTO_MIN: u16 = 1;
    pub(crate) const REDIR_PROTO_MAX: u16 = 2;

    /// Of xtables, matches and targets alike.
    pub(crate) const TARGET_NAME: u16 = 1;
    pub(crate) const TARGET_REVISION: u16 = 2;
    pub(crate) const TARGET_INFO: u16 = 3;

    pub(crate) const REJECT_TYPE: u16 = 1;
    pub(crate) const REJECT_ICMP_CODE: u16 = 2;
    pub(crate) const REJECT_TCP_RST: u32 = 1;
    pub(crate) const REJECT_ICMPX: u32 = 2;
    pub(crate) const REJECT_ICMPX_PORT_UNREACH: u8 = 1;
}
