//! Parses expressions from their attributes, with the checks of the kernel's `nft_*.c`.

use super::{
    attributes::{Attribute, Attributes},
    data::{Data, Handle, Verdict},
    errno::{Errno, Result, refuse},
    expression::{
        Expression,
        register::{Register, Registers},
    },
    ruleset::Table,
    set::Binding,
    uapi::{NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6, data, expr, set, verdict},
};

/// The kernel's names of expressions.
const NAMES: [&str; 16] = [
    "immediate",
    "bitwise",
    "cmp",
    "lookup",
    "dynset",
    "payload",
    "meta",
    "ct",
    "hash",
    "numgen",
    "fib",
    "nat",
    "masq",
    "redir",
    "reject",
    "counter",
];

/// An expression whose name is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parsed<'a> {
    name: &'a str,
    attributes: Attributes<'a>,
    pub(crate) at: usize,
}

/// `nf_tables_expr_parse`; `missing` are names whose modules the kernel lacks.
pub(crate) fn parse<'a>(attribute: Attribute<'a>, missing: &[String]) -> Result<Parsed<'a>> {
    let nested = attribute.nested();
    let Some(name) = nested.text(expr::NAME) else {
        return refuse(Errno::EINVAL);
    };
    if !NAMES.contains(&name) || missing.iter().any(|missing| missing == name) {
        return refuse(Errno::ENOENT);
    }
    let attributes = nested.nested(expr::DATA).unwrap_or(Attributes::new(&[], 0));
    let parsed = Parsed {
        name,
        attributes,
        at: attribute.at,
    };
    // The kernel selects the variant of these expressions before any other check.
    match name {
        // It reads or writes, not both.
        "meta"
            if !attributes.has(expr::META_KEY)
                || attributes.has(expr::META_DREG) == attributes.has(expr::META_SREG) =>
        {
            refuse(Errno::EINVAL)
        }
        "payload" => parsed.payload_bounds().map(|_| parsed),
        "cmp" => parsed.comparison().map(|_| parsed),
        _ => Ok(parsed),
    }
}

/// The place of a new expression.
#[derive(Debug)]
pub(crate) struct Scope<'a> {
    pub(crate) table: &'a mut Table,
    pub(crate) chain: Handle,
    pub(crate) rule: Handle,
    /// The sets created in this transaction, by their ids.
    pub(crate) set_ids: &'a [(u32, Handle)],
    pub(crate) registers: &'a mut Registers,
}

impl Scope<'_> {
    fn load(&self, attribute: Option<Attribute<'_>>, len: u32) -> Result<Register> {
        self.registers.load(attribute, len)
    }

    fn store(&mut self, attribute: Option<Attribute<'_>>, len: u32) -> Result<Register> {
        self.registers.store(attribute, len)
    }

    /// `nft_set_lookup_global`
    fn set(&self, name: Option<&str>, id: Option<u32>) -> Result<Handle> {
        let named = name
            .and_then(|name| self.table.set(name))
            .map(|set| set.handle);
        let by_id = || {
            let id = id?;
            let is_it =
                |(known, set): &&(u32, Handle)| *known == id && self.table.sets.contains_key(set);
            self.set_ids.iter().rev().find(is_it).map(|(_, set)| *set)
        };
        named.or_else(by_id).ok_or(Errno::ENOENT.into())
    }

    /// `nf_tables_bind_set`
    fn bind(&mut self, set: Handle, is_map: bool) -> Result<()> {
        let Some(found) = self.table.sets.get(&set) else {
            return refuse(Errno::ENOENT);
        };
        if found.is_anonymous() && !found.bindings.is_empty() {
            return refuse(Errno::EBUSY);
        }
        let binding = Binding {
            chain: self.chain,
            rule: self.rule,
            is_map,
            is_gone: false,
        };
        if let Some(found) = self.table.set_mut(set) {
            found.bindings.push(binding);
            found.is_unbound = false;
        }
        Ok(())
    }
}

/// The data of an element or an immediate: `nft_data_init`. `len` is the required length, 0 for any.
pub(crate) fn read_data(
    table: &mut Table,
    attribute: Attribute<'_>,
    is_verdict: bool,
    len: u32,
    max: usize,
) -> Result<Data> {
    let nested = attribute.nested();
    match (nested.get(data::VALUE), nested.get(data::VERDICT)) {
        (Some(value), _) if !is_verdict => read_value(value, len, max).map(Data::Value),
        (None, Some(verdict)) if is_verdict => {
            read_verdict(table, verdict.nested()).map(Data::Verdict)
        }
        _ => refuse(Errno::EINVAL),
    }
}

/// `nft_value_init`
fn read_value(value: Attribute<'_>, len: u32, max: usize) -> Result<Vec<u8>> {
    let found = value.payload.len();
    match found {
        0 => refuse(Errno::EINVAL),
        _ if found > max => refuse(Errno::EOVERFLOW),
        _ if len != 0 && found != len as usize => refuse(Errno::EINVAL),
        _ => Ok(value.payload.to_vec()),
    }
}

/// A plain value, such as a key or an operand.
pub(crate) fn read_plain(attribute: Attribute<'_>, len: u32, max: usize) -> Result<Vec<u8>> {
    match attribute.nested().get(data::VALUE) {
        Some(value) => read_value(value, len, max),
        None => refuse(Errno::EINVAL),
    }
}

/// `nft_verdict_init`
fn read_verdict(table: &mut Table, attributes: Attributes<'_>) -> Result<Verdict> {
    let Some(code) = attributes.u32(data::VERDICT_CODE)? else {
        return refuse(Errno::EINVAL);
    };
    let code = code.cast_signed();
    let mut verdict = Verdict { code, chain: None };
    match code {
        verdict::ACCEPT | verdict::DROP | verdict::CONTINUE | verdict::BREAK | verdict::RETURN => {}
        verdict::JUMP | verdict::GOTO => {
            let Some(name) = attributes.text(data::VERDICT_CHAIN) else {
                return refuse(Errno::EINVAL);
            };
            let Some(chain) = table.chain(name) else {
                return refuse(Errno::ENOENT);
            };
            if chain.base.is_some() {
                return refuse(Errno::EOPNOTSUPP);
            }
            verdict.chain = Some(chain.handle);
            table.count_use(&Data::Verdict(verdict), true);
        }
        _ => return refuse(Errno::EINVAL),
    }
    Ok(verdict)
}

/// A number that must fit one byte.
fn small(attributes: Attributes<'_>, kind: u16) -> Result<u32> {
    match attributes.u32(kind)? {
        Some(number) if number > u32::from(u8::MAX) => refuse(Errno::ERANGE),
        Some(number) => Ok(number),
        None => refuse(Errno::EINVAL),
    }
}

fn required(attributes: Attributes<'_>, kind: u16) -> Result<u32> {
    match attributes.u32(kind)? {
        Some(number) => Ok(number),
        None => refuse(Errno::EINVAL),
    }
}

fn needs(attributes: Attributes<'_>, kinds: &[u16]) -> Result<()> {
    if kinds.iter().all(|kind| attributes.has(*kind)) {
        Ok(())
    } else {
        refuse(Errno::EINVAL)
    }
}

impl Parsed<'_> {
    fn payload_bounds(self) -> Result<(u32, u32, u32)> {
        let attributes = self.attributes;
        needs(
            attributes,
            &[expr::PAYLOAD_BASE, expr::PAYLOAD_OFFSET, expr::PAYLOAD_LEN],
        )?;
        let base = required(attributes, expr::PAYLOAD_BASE)?;
        if base > expr::TRANSPORT_HEADER {
            return refuse(Errno::EOPNOTSUPP);
        }
        needs(attributes, &[expr::PAYLOAD_DREG])?;
        let offset = required(attributes, expr::PAYLOAD_OFFSET)?;
        if offset > u32::from(u16::MAX) {
            return refuse(Errno::ERANGE);
        }
        Ok((base, offset, small(attributes, expr::PAYLOAD_LEN)?))
    }

    fn comparison(self) -> Result<(u32, Vec<u8>)> {
        const GREATER_OR_EQUAL: u32 = 5;
        let attributes = self.attributes;
        needs(attributes, &[expr::CMP_SREG, expr::CMP_OP, expr::CMP_DATA])?;
        let operator = required(attributes, expr::CMP_OP)?;
        if operator > GREATER_OR_EQUAL {
            return refuse(Errno::EINVAL);
        }
        match attributes.get(expr::CMP_DATA) {
            Some(value) => Ok((operator, read_plain(value, 0, 16)?)),
            None => refuse(Errno::EINVAL),
        }
    }

    /// Creates the expression: `nf_tables_newexpr`. Increments the use counts of chains and sets that it refers to.
    pub(crate) fn init(self, scope: &mut Scope<'_>) -> Result<Expression> {
        match self.name {
            "immediate" => self.immediate(scope),
            "bitwise" => self.bitwise(scope),
            "cmp" => {
                let (operator, value) = self.comparison()?;
                let from = scope.load(self.attributes.get(expr::CMP_SREG), length(&value))?;
                Ok(Expression::Compare {
                    from,
                    operator,
                    value,
                })
            }
            "lookup" => self.lookup(scope),
            "dynset" => self.dynset(scope),
            "payload" => {
                let (base, offset, len) = self.payload_bounds()?;
                let to = scope.store(self.attributes.get(expr::PAYLOAD_DREG), len)?;
                Ok(Expression::Payload {
                    base,
                    offset,
                    len,
                    to,
                })
            }
            "meta" if self.attributes.has(expr::META_SREG) => {
                let key = required(self.attributes, expr::META_KEY)?;
                // Other writable keys are not modelled.
                if !matches!(key, expr::META_PRIORITY | expr::META_MARK) {
                    return refuse(Errno::EOPNOTSUPP);
                }
                let from = scope.load(self.attributes.get(expr::META_SREG), 4)?;
                Ok(Expression::MetaSet { key, from })
            }
            "meta" => {
                let key = required(self.attributes, expr::META_KEY)?;
                let Some(len) = meta_len(key) else {
                    return refuse(Errno::EOPNOTSUPP);
                };
                let to = scope.store(self.attributes.get(expr::META_DREG), len)?;
                Ok(Expression::Meta { key, to })
            }
            "ct" => self.conntrack(scope),
            "hash" => self.hash(scope),
            "numgen" => self.numgen(scope),
            "fib" => self.fib(scope),
            "nat" => self.nat(scope),
            "masq" => {
                let flags = self.attributes.u32(expr::MASQ_FLAGS)?.unwrap_or_default();
                if flags & !NAT_RANGE_MASK != 0 {
                    refuse(Errno::EINVAL)
                } else {
                    Ok(Expression::Masquerade { flags })
                }
            }
            "redir" => self.redirect(scope),
            "reject" => self.reject(),
            _ => {
                let number = |kind| self.attributes.u64(kind).map(Option::unwrap_or_default);
                Ok(Expression::Counter {
                    bytes: number(expr::COUNTER_BYTES)?,
                    packets: number(expr::COUNTER_PACKETS)?,
                })
            }
        }
    }

    fn immediate(self, scope: &mut Scope<'_>) -> Result<Expression> {
        let attributes = self.attributes;
        needs(attributes, &[expr::IMMEDIATE_DREG, expr::IMMEDIATE_DATA])?;
        let is_verdict = required(attributes, expr::IMMEDIATE_DREG)? == 0;
        let Some(attribute) = attributes.get(expr::IMMEDIATE_DATA) else {
            return refuse(Errno::EINVAL);
        };
        let data = read_data(scope.table, attribute, is_verdict, 0, 16)?;
        let stored = match &data {
            Data::Verdict(_) => Ok(Register::VERDICT),
            Data::Value(value) => scope.store(attributes.get(expr::IMMEDIATE_DREG), length(value)),
        };
        match stored {
            Ok(to) => Ok(Expression::Immediate { to, data }),
            Err(refused) => {
                scope.table.count_use(&data, false);
                Err(refused)
            }
        }
    }

    fn bitwise(self, scope: &mut Scope<'_>) -> Result<Expression> {
        let attributes = self.attributes;
        needs(
            attributes,
            &[expr::BITWISE_SREG, expr::BITWISE_DREG, expr::BITWISE_LEN],
        )?;
        let len = small(attributes, expr::BITWISE_LEN)?;
        let from = scope.load(attributes.get(expr::BITWISE_SREG), len)?;
        let to = scope.store(attributes.get(expr::BITWISE_DREG), len)?;
        if attributes.u32(expr::BITWISE_OP)?.unwrap_or_default() != 0 {
            // Shifts and the like are not modelled.
            return refuse(Errno::EOPNOTSUPP);
        }
        match (
            attributes.get(expr::BITWISE_MASK),
            attributes.get(expr::BITWISE_XOR),
        ) {
            (Some(mask), Some(xor)) => {
                let operand = |attribute| read_plain(attribute, len, 16);
                Ok(Expression::Bitwise {
                    from,
                    to,
                    mask: operand(mask)?,
                    xor: operand(xor)?,
                })
            }
            _ => refuse(Errno::EINVAL),
        }
    }

    fn lookup(self, scope: &mut Scope<'_>) -> Result<Expression> {
        let attributes = self.attributes;
        needs(attributes, &[expr::LOOKUP_SET, expr::LOOKUP_SREG])?;
        let id = attributes.u32(expr::LOOKUP_SET_ID)?;
        let handle = scope.set(attributes.text(expr::LOOKUP_SET), id)?;
        let Some(found) = scope.table.sets.get(&handle) else {
            return refuse(Errno::ENOENT);
        };
        let (declaration, is_map) = (found.declaration.clone(), found.has(set::F_MAP));
        let key = scope.load(attributes.get(expr::LOOKUP_SREG), declaration.key_len)?;
        let flags = attributes.u32(expr::LOOKUP_FLAGS)?.unwrap_or_default();
        if flags & !expr::LOOKUP_F_INV != 0 {
            return refuse(Errno::EINVAL);
        }
        let invert = flags != 0;
        let to = match attributes.get(expr::LOOKUP_DREG) {
            Some(_) if invert || !is_map => return refuse(Errno::EINVAL),
            Some(register) if declaration.data_type == data::TYPE_VERDICT => {
                if Register::read(register)? != Register::VERDICT {
                    return refuse(Errno::EINVAL);
                }
                Some(Register::VERDICT)
            }
            Some(register) => Some(scope.store(Some(register), declaration.data_len)?),
            None => None,
        };
        scope.bind(handle, is_map)?;
        Ok(Expression::Lookup {
            set: handle,
            key,
            to,
            invert,
        })
    }

    fn dynset(self, scope: &mut Scope<'_>) -> Result<Expression> {
        let attributes = self.attributes;
        needs(
            attributes,
            &[
                expr::DYNSET_SET_NAME,
                expr::DYNSET_OP,
                expr::DYNSET_SREG_KEY,
            ],
        )?;
        let id = attributes.u32(expr::DYNSET_SET_ID)?;
        let handle = scope.set(attributes.text(expr::DYNSET_SET_NAME), id)?;
        let Some(found) = scope.table.sets.get(&handle) else {
            return refuse(Errno::ENOENT);
        };
        if !found.can_be_updated() {
            return refuse(Errno::EOPNOTSUPP);
        }
        if found.has(set::F_CONSTANT) {
            return refuse(Errno::EBUSY);
        }
        let (declaration, is_map) = (found.declaration.clone(), found.has(set::F_MAP));
        let has_timeout = found.has(set::F_TIMEOUT);
        let operation = required(attributes, expr::DYNSET_OP)?;
        if operation > expr::DYNSET_OP_DELETE {
            return refuse(Errno::EOPNOTSUPP);
        }
        let timeout = attributes.u64(expr::DYNSET_TIMEOUT)?;
        if timeout.is_some() && !has_timeout {
            return refuse(Errno::EOPNOTSUPP);
        }
        let key = scope.load(attributes.get(expr::DYNSET_SREG_KEY), declaration.key_len)?;
        let data = match attributes.get(expr::DYNSET_SREG_DATA) {
            Some(_) if !is_map || declaration.data_type == data::TYPE_VERDICT => {
                return refuse(Errno::EOPNOTSUPP);
            }
            Some(register) => Some(scope.load(Some(register), declaration.data_len)?),
            None if is_map => return refuse(Errno::EINVAL),
            None => None,
        };
        scope.bind(handle, is_map)?;
        Ok(Expression::Dynset {
            set: handle,
            operation,
            key,
            data,
            timeout: timeout.unwrap_or_default(),
        })
    }

    fn conntrack(self, scope: &mut Scope<'_>) -> Result<Expression> {
        let attributes = self.attributes;
        needs(attributes, &[expr::CT_KEY, expr::CT_DREG])?;
        let key = required(attributes, expr::CT_KEY)?;
        let direction = attributes
            .get(expr::CT_DIRECTION)
            .map(Attribute::u8)
            .transpose()?;
        let len = match key {
            expr::CT_STATE | expr::CT_STATUS if direction.is_some() => {
                return refuse(Errno::EINVAL);
            }
            expr::CT_PROTOCOL => 1,
            expr::CT_PROTO_DST | expr::CT_DST_IP | expr::CT_DST_IP6 if direction.is_none() => {
                return refuse(Errno::EINVAL);
            }
            expr::CT_PROTO_DST => 2,
            expr::CT_STATE | expr::CT_STATUS | expr::CT_DST_IP => 4,
            expr::CT_DST_IP6 => 16,
            // Others are not modelled.
            _ => return refuse(Errno::EOPNOTSUPP),
        };
        if direction.is_some_and(|direction| direction > 1) {
            return refuse(Errno::EINVAL);
        }
        let to = scope.store(attributes.get(expr::CT_DREG), len)?;
        Ok(Expression::Conntrack { key, direction, to })
    }

    fn hash(self, scope: &mut Scope<'_>) -> Result<Expression> {
        let attributes = self.attributes;
        if attributes.u32(expr::HASH_TYPE)?.unwrap_or_default() != 0 {
            return refuse(Errno::EOPNOTSUPP);
        }
        needs(
            attributes,
            &[
                expr::HASH_SREG,
                expr::HASH_DREG,
                expr::HASH_LEN,
                expr::HASH_MODULUS,
            ],
        )?;
        let offset = attributes.u32(expr::HASH_OFFSET)?.unwrap_or_default();
        let len = small(attributes, expr::HASH_LEN)?;
        if len == 0 {
            return refuse(Errno::ERANGE);
        }
        let from = scope.load(attributes.get(expr::HASH_SREG), len)?;
        let modulus = required(attributes, expr::HASH_MODULUS)?;
        bounded(modulus, offset)?;
        let seed = attributes.u32(expr::HASH_SEED)?;
        let to = scope.store(attributes.get(expr::HASH_DREG), 4)?;
        Ok(Expression::Hash {
            from,
            len,
            to,
            modulus,
            seed,
            offset,
        })
    }

    fn numgen(self, scope: &mut Scope<'_>) -> Result<Expression> {
        let attributes = self.attributes;
        needs(
            attributes,
            &[expr::NUMGEN_DREG, expr::NUMGEN_MODULUS, expr::NUMGEN_TYPE],
        )?;
        let kind = required(attributes, expr::NUMGEN_TYPE)?;
        if kind > expr::NUMGEN_RANDOM {
            return refuse(Errno::EINVAL);
        }
        let offset = attributes.u32(expr::NUMGEN_OFFSET)?.unwrap_or_default();
        let modulus = required(attributes, expr::NUMGEN_MODULUS)?;
        bounded(modulus, offset)?;
        let to = scope.store(attributes.get(expr::NUMGEN_DREG), 4)?;
        Ok(Expression::Numgen {
            to,
            modulus,
            kind,
            offset,
        })
    }

    fn fib(self, scope: &mut Scope<'_>) -> Result<Expression> {
        let attributes = self.attributes;
        needs(
            attributes,
            &[expr::FIB_DREG, expr::FIB_RESULT, expr::FIB_FLAGS],
        )?;
        let flags = required(attributes, expr::FIB_FLAGS)?;
        let addresses = flags & (expr::FIB_F_SADDR | expr::FIB_F_DADDR);
        let result = required(attributes, expr::FIB_RESULT)?;
        // Other flags and results are not modelled.
        if flags != addresses || !addresses.is_power_of_two() || result != expr::FIB_RESULT_ADDRTYPE
        {
            return refuse(Errno::EINVAL);
        }
        let to = scope.store(attributes.get(expr::FIB_DREG), 4)?;
        Ok(Expression::Fib { to, result, flags })
    }

    fn nat(self, scope: &mut Scope<'_>) -> Result<Expression> {
        let attributes = self.attributes;
        // The policy of the attribute has a mask, so this is checked before all others.
        let flags = attributes.u32(expr::NAT_FLAGS)?.unwrap_or_default();
        if flags & !NAT_RANGE_MASK != 0 {
            return refuse(Errno::EINVAL);
        }
        let kind = required(attributes, expr::NAT_TYPE)?;
        if !attributes.has(expr::NAT_REG_ADDR_MIN) && !attributes.has(expr::NAT_REG_PROTO_MIN) {
            return refuse(Errno::EINVAL);
        }
        if kind > expr::NAT_DNAT {
            return refuse(Errno::EOPNOTSUPP);
        }
        let family = required(attributes, expr::NAT_FAMILY)?;
        let of_table = scope.table.family;
        if of_table != NFPROTO_INET && u32::from(of_table) != family {
            return refuse(Errno::EOPNOTSUPP);
        }
        let len = match u8::try_from(family) {
            Ok(NFPROTO_IPV4) => 4,
            Ok(NFPROTO_IPV6) => 16,
            _ => return refuse(Errno::EAFNOSUPPORT),
        };
        let range = |min, max, len| self.range(scope, [min, max], len);
        let address = range(expr::NAT_REG_ADDR_MIN, expr::NAT_REG_ADDR_MAX, len)?;
        let port = range(expr::NAT_REG_PROTO_MIN, expr::NAT_REG_PROTO_MAX, 2)?;
        let implied = u32::from(address.is_some()) | u32::from(port.is_some()) << 1;
        Ok(Expression::Nat {
            kind,
            family,
            address,
            port,
            flags: flags | implied,
        })
    }

    fn redirect(self, scope: &Scope<'_>) -> Result<Expression> {
        let port = self.range(scope, [expr::REDIR_PROTO_MIN, expr::REDIR_PROTO_MIN + 1], 2)?;
        let flags = self.attributes.u32(expr::REDIR_FLAGS)?.unwrap_or_default();
        if flags & !NAT_RANGE_MASK != 0 {
            return refuse(Errno::EINVAL);
        }
        Ok(Expression::Redirect {
            port,
            flags: flags | u32::from(port.is_some()) << 1,
        })
    }

    /// Two registers; the second defaults to the first.
    fn range(
        self,
        scope: &Scope<'_>,
        [min, max]: [u16; 2],
        len: u32,
    ) -> Result<Option<[Register; 2]>> {
        let Some(first) = self.attributes.get(min) else {
            return Ok(None);
        };
        let first = scope.load(Some(first), len)?;
        let last = match self.attributes.get(max) {
            Some(last) => scope.load(Some(last), len)?,
            None => first,
        };
        Ok(Some([first, last]))
    }

    fn reject(self) -> Result<Expression> {
        const LAST_ICMPX: u8 = 3;
        let kind = required(self.attributes, expr::REJECT_TYPE)?;
        let code = || match self.attributes.get(expr::REJECT_ICMP_CODE) {
            Some(code) => code.u8(),
            None => refuse(Errno::EINVAL),
        };
        let code = match kind {
            expr::REJECT_TCP_RST => 0,
            expr::REJECT_ICMP_UNREACH | expr::REJECT_ICMPX_UNREACH => code()?,
            _ => return refuse(Errno::EINVAL),
        };
        if kind == expr::REJECT_ICMPX_UNREACH && code > LAST_ICMPX {
            return refuse(Errno::EINVAL);
        }
        Ok(Expression::Reject { kind, code })
    }
}

/// `NF_NAT_RANGE_MASK`
const NAT_RANGE_MASK: u32 = 0x7f;

/// From `offset` there are `modulus` numbers.
fn bounded(modulus: u32, offset: u32) -> Result<()> {
    match modulus {
        0 => refuse(Errno::ERANGE),
        _ if offset.checked_add(modulus - 1).is_none() => refuse(Errno::EOVERFLOW),
        _ => Ok(()),
    }
}

/// The size of a key of `meta` in bytes; none for keys that are not modelled.
const fn meta_len(key: u32) -> Option<u32> {
    Some(match key {
        expr::META_IIFNAME | expr::META_OIFNAME => 16,
        expr::META_NFPROTO | expr::META_L4PROTO => 1,
        expr::META_PRIORITY | expr::META_MARK => 4,
        _ => return None,
    })
}

fn length(value: &[u8]) -> u32 {
    u32::try_from(value.len()).unwrap_or(u32::MAX)
}
