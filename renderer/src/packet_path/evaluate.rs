//! Runs the rules of a base chain over a packet. What cannot be evaluated is recorded, and taken as a rule that does not match.

use super::{
    Doubt, Hook, Network, PathError, RuleRef, StopKind, WalkStep,
    effect::{Effect, Translation},
    fields,
    lookups::RuleLookups,
    registers::{Answer, Bits, Registers},
    ruleset::{
        Data, Expression, Limit, LookupTarget, MarkTransfer, Register, Rule, Ruleset, SetRef,
        Verdict, XtMatch, XtTarget,
    },
    state::{PacketState, Tracking},
    xt_match,
};
use crate::nftables::netlink::constants::{expr, object};

/// The number of rules that a packet may pass in one base chain. The kernel has no loops of chains; this bounds rules that are odd.
const MAX_RULES: usize = 4_000_000;
/// The number of chains that jump to another, at most: `NFT_JUMP_STACK_SIZE`.
const MAX_JUMPS: usize = 16;
/// How many uncertain jumps are followed within each other, to see whether they do harm.
const MAX_SPECULATIONS: usize = 4;

/// What rules read beyond the packet.
pub(super) struct Sources<'a> {
    pub(super) ruleset: &'a Ruleset,
    pub(super) network: &'a mut dyn Network,
    pub(super) lookups: &'a mut dyn RuleLookups,
}

/// What happened to a packet, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Record {
    pub(super) steps: Vec<WalkStep>,
    pub(super) doubts: Vec<Doubt>,
}

impl Record {
    fn add_doubt(&mut self, doubt: Doubt) {
        if !self.doubts.contains(&doubt) {
            self.doubts.push(doubt);
        }
    }
}

/// How a packet leaves a base chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChainEnd {
    /// It passes.
    Passed,
    /// It ends here.
    Stopped { by: RuleRef, kind: StopKind },
}

/// The next thing to do after a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Next {
    Rule,
    Accept,
    Return,
    Jump(usize),
    Goto(usize),
    Stop(StopKind),
}

/// The result of an expression.
enum Step {
    Expression,
    NoMatch,
    /// Whether the packet matches is unknown, for this reason.
    Unknown(String),
    /// It matches unless more packets come than this limit allows.
    Within(&'static str),
    Effect(Effect),
    /// One of these verdicts, for this reason.
    OneOf(Vec<Verdict>, String),
}

impl From<Answer> for Step {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Yes => Self::Expression,
            Answer::No => Self::NoMatch,
            Answer::Unknown(reason) => Self::Unknown(reason),
        }
    }
}

/// A rule that is evaluated.
struct Position<'r> {
    chain: usize,
    rule: &'r Rule,
    registers: Registers,
    /// Why it is unknown whether the packet matches.
    uncertain: Option<String>,
    /// The limit within which it matches.
    within: Option<&'static str>,
}

/// Evaluates a base chain.
pub(super) struct Evaluator<'e, 'a> {
    sources: &'e mut Sources<'a>,
    hook: Hook,
    base: usize,
    speculations: usize,
    rules_left: usize,
}

/// Runs a base chain, including its policy.
///
/// # Errors
/// When the kernel cannot be asked for a route.
pub(super) fn run_base_chain(
    sources: &mut Sources<'_>,
    base: usize,
    hook: Hook,
    state: &mut PacketState,
    record: &mut Record,
) -> Result<ChainEnd, PathError> {
    let ruleset = sources.ruleset;
    let mut evaluator = Evaluator {
        sources,
        hook,
        base,
        speculations: 0,
        rules_left: MAX_RULES,
    };
    let end = evaluator.run(base, state, record)?;
    let drops_by_policy = ruleset.base(base).is_some_and(|base| base.drops_by_policy);
    Ok(match end {
        RunEnd::Stopped { by, kind } => ChainEnd::Stopped { by, kind },
        RunEnd::Finished if drops_by_policy => ChainEnd::Stopped {
            by: ruleset.rule_ref(base, base, None),
            kind: StopKind::Drops,
        },
        RunEnd::Accepted | RunEnd::Finished => ChainEnd::Passed,
    })
}

/// How a run ends.
enum RunEnd {
    Accepted,
    Stopped {
        by: RuleRef,
        kind: StopKind,
    },
    /// No rule has decided.
    Finished,
}

impl Evaluator<'_, '_> {
    /// Runs a chain, and those that it jumps to.
    fn run(
        &mut self,
        first: usize,
        state: &mut PacketState,
        record: &mut Record,
    ) -> Result<RunEnd, PathError> {
        let ruleset = self.sources.ruleset;
        // The return positions of jumps.
        let mut stack: Vec<(usize, usize)> = Vec::new();
        let (mut chain, mut number) = (first, 0);
        loop {
            let next = ruleset.next_rule(chain, number, state.destination);
            let Some((found, rule)) = next else {
                let Some(back) = stack.pop() else {
                    return Ok(RunEnd::Finished);
                };
                (chain, number) = back;
                continue;
            };
            number = found + 1;
            self.rules_left = self.rules_left.checked_sub(1).ok_or_else(|| {
                PathError(format!(
                    "a packet passes more than {MAX_RULES} rules of {}",
                    ruleset.chain_ref(self.base).table
                ))
            })?;
            match self.run_rule(chain, rule, state, record)? {
                Next::Rule => {}
                Next::Accept => return Ok(RunEnd::Accepted),
                Next::Return => number = usize::MAX,
                Next::Jump(to) if stack.len() < MAX_JUMPS => {
                    stack.push((chain, number));
                    (chain, number) = (to, 0);
                }
                Next::Jump(_) => {
                    return Err(PathError("chains jump too deep".to_owned()));
                }
                Next::Goto(to) => (chain, number) = (to, 0),
                Next::Stop(kind) => {
                    let by = ruleset.rule_ref(self.base, chain, Some(rule));
                    return Ok(RunEnd::Stopped { by, kind });
                }
            }
        }
    }

    fn run_rule(
        &mut self,
        chain: usize,
        rule: &Rule,
        state: &mut PacketState,
        record: &mut Record,
    ) -> Result<Next, PathError> {
        let mut position = Position {
            chain,
            rule,
            registers: Registers::new(),
            uncertain: None,
            within: None,
        };
        for expression in self.sources.ruleset.expressions(rule) {
            let next = match self.step(&mut position, &expression, state)? {
                Step::Expression => None,
                Step::NoMatch => return Ok(Next::Rule),
                Step::Unknown(reason) => {
                    position.uncertain.get_or_insert(reason);
                    None
                }
                Step::Within(limit) => {
                    position.within.get_or_insert(limit);
                    None
                }
                Step::Effect(effect) => self.take_effect(&position, effect, state, record)?,
                Step::OneOf(verdicts, reason) => {
                    position.uncertain.get_or_insert(reason);
                    for verdict in verdicts {
                        let effect = Effect::Verdict(verdict);
                        self.take_effect(&position, effect, state, record)?;
                    }
                    Some(Next::Rule)
                }
            };
            if let Some(next) = next {
                return Ok(next);
            }
        }
        Ok(Next::Rule)
    }

    /// What a rule does, if it is certain that the packet matches. Otherwise it is recorded. None if the rule continues.
    fn take_effect(
        &mut self,
        position: &Position<'_>,
        effect: Effect,
        state: &mut PacketState,
        record: &mut Record,
    ) -> Result<Option<Next>, PathError> {
        let (ruleset, base) = (self.sources.ruleset, self.base);
        let rule = || ruleset.rule_ref(base, position.chain, Some(position.rule));
        let condition = match (&position.uncertain, effect.unknown_part()) {
            (Some(reason), _) => Some(reason.clone()),
            (None, reason) => reason,
        };
        if let Some(condition) = condition {
            let is_harmful = self.is_harmful(position.chain, &effect, state)?;
            effect.make_unknown(state);
            if effect.is_notable() {
                record.add_doubt(Doubt {
                    rule: rule(),
                    condition,
                    effect: effect.to_string(),
                    is_harmful,
                });
            }
            return Ok(effect.is_final().then_some(Next::Rule));
        }
        if let Some(limit) = position.within
            && effect.is_notable()
        {
            record.add_doubt(Doubt {
                rule: rule(),
                condition: limit.to_owned(),
                effect: effect.to_string(),
                is_harmful: false,
            });
        }
        Ok(match effect {
            Effect::Verdict(verdict) => self.follow(position.chain, &verdict),
            Effect::Stop(kind, _) => Some(Next::Stop(kind)),
            Effect::Untrack => {
                // Once conntrack has seen a packet nothing hides it.
                if state.connection.tracking == Tracking::NotYet {
                    state.connection.tracking = Tracking::Untracked;
                    record.steps.push(WalkStep::Untracked(rule()));
                }
                None
            }
            Effect::Mark { mark, unknown } => {
                if (mark, unknown) != (state.mark, state.unknown_mark) {
                    (state.mark, state.unknown_mark) = (mark, unknown);
                    record.steps.push(WalkStep::Marked { by: rule(), mark });
                }
                None
            }
            Effect::MarkConnection { mark, unknown } => {
                if state.connection.tracking == Tracking::Tracked {
                    (state.connection.mark, state.connection.unknown_mark) = (mark, unknown);
                }
                None
            }
            Effect::Prioritize(priority) => {
                state.priority = priority;
                None
            }
            Effect::Translate(translation) => {
                let by = rule();
                match translation {
                    Translation::Destination(Ok(to)) => {
                        state.translate_destination(to);
                        let step = WalkStep::DestinationChanged { by, to };
                        record.steps.push(step);
                    }
                    Translation::Source(Ok(to)) => {
                        state.translate_source(to);
                        record
                            .steps
                            .push(WalkStep::SourceChanged { by, to: Some(to) });
                    }
                    Translation::Masquerade(to) => {
                        state.translate_source(to);
                        record.steps.push(WalkStep::SourceChanged { by, to: None });
                    }
                    // Its unknown part was recorded above.
                    Translation::Destination(Err(_)) | Translation::Source(Err(_)) => {}
                }
                Some(Next::Accept)
            }
            Effect::ClampSegments => {
                record.steps.push(WalkStep::SegmentsClamped(rule()));
                None
            }
            // Recorded above.
            Effect::Unknown { .. } => None,
        })
    }

    fn follow(&self, chain: usize, verdict: &Verdict) -> Option<Next> {
        let beside = |name: &str| self.sources.ruleset.chain_beside(chain, name);
        Some(match verdict {
            Verdict::Continue => return None,
            Verdict::Accept => Next::Accept,
            Verdict::Drop => Next::Stop(StopKind::Drops),
            Verdict::Queue { .. } => Next::Stop(StopKind::Queues),
            Verdict::Return => Next::Return,
            Verdict::Jump(name) => beside(name).map_or(Next::Rule, Next::Jump),
            Verdict::Goto(name) => beside(name).map_or(Next::Rule, Next::Goto),
        })
    }

    /// Whether what a rule does would stop the packet, change its addresses or hide it from conntrack. A chain is run for that.
    fn is_harmful(
        &mut self,
        chain: usize,
        effect: &Effect,
        state: &PacketState,
    ) -> Result<bool, PathError> {
        let Effect::Verdict(Verdict::Jump(name) | Verdict::Goto(name)) = effect else {
            return Ok(effect.is_harmful());
        };
        let Some(to) = self.sources.ruleset.chain_beside(chain, name) else {
            return Ok(false);
        };
        if self.speculations >= MAX_SPECULATIONS {
            return Ok(true);
        }
        self.speculations += 1;
        let (mut state, mut record) = (state.clone(), Record::default());
        let end = self.run(to, &mut state, &mut record);
        self.speculations -= 1;
        let does_harm = |step: &WalkStep| {
            matches!(
                step,
                WalkStep::DestinationChanged { .. }
                    | WalkStep::SourceChanged { .. }
                    | WalkStep::Untracked(_)
            )
        };
        Ok(matches!(end?, RunEnd::Stopped { .. })
            || record.steps.iter().any(does_harm)
            || record.doubts.iter().any(|doubt| doubt.is_harmful))
    }

    fn step(
        &mut self,
        position: &mut Position<'_>,
        expression: &Expression,
        state: &PacketState,
    ) -> Result<Step, PathError> {
        let registers = &mut position.registers;
        let value = match expression {
            Expression::Immediate { to, value } => Some((*to, Bits::known(value))),
            Expression::Payload {
                base,
                offset,
                len,
                to,
            } => state
                .header(*base)
                .and_then(|header| header.part(*offset, *len))
                .map(|value| (*to, value)),
            Expression::Meta { key, to } => {
                let value = fields::meta(*key, self.hook, state, self.sources.lookups);
                value.map(|value| (*to, value))
            }
            Expression::Conntrack { key, direction, to } => {
                fields::conntrack(*key, *direction, state).map(|value| (*to, value))
            }
            Expression::Fib { result, flags, to } => {
                let Sources {
                    network, lookups, ..
                } = self.sources;
                let value = fields::fib(*result, *flags, state, *network, *lookups)?;
                Some((*to, value))
            }
            Expression::AbsentHeader { to } => to.map(|to| (to, Bits::known(&[0]))),
            Expression::Bitwise {
                from,
                to,
                mask,
                xor,
            } => Some((*to, registers.read(*from, mask.len()).masked(mask, xor))),
            Expression::Shift {
                from,
                to,
                len,
                is_left,
                bits,
            } => Some((
                *to,
                registers
                    .read(*from, len.next_multiple_of(4))
                    .shifted(*is_left, *bits),
            )),
            Expression::Byteorder {
                from,
                to,
                len,
                size,
            } => Some((*to, registers.read(*from, *len).swapped(*size))),
            Expression::Random {
                modulus,
                offset,
                to,
            } => Some((
                *to,
                match self.sources.lookups.choose(*modulus) {
                    Some(choice) => Bits::known(&offset.wrapping_add(choice).to_ne_bytes()),
                    None => Bits::unknown(4, "numgen"),
                },
            )),
            Expression::Hash {
                modulus,
                offset,
                to,
            } => Some((
                *to,
                match self.sources.lookups.choose_by_hash(*modulus) {
                    Some(choice) => Bits::known(&offset.wrapping_add(choice).to_ne_bytes()),
                    None => Bits::unknown(4, "hash"),
                },
            )),
            Expression::Unknown { name, to } => {
                let Some((to, len)) = to else {
                    return Ok(Step::Unknown(name.clone()));
                };
                Some((*to, Bits::unknown(*len, name)))
            }
            _ => return self.step_without_value(position, expression, state),
        };
        Ok(match value {
            Some((to, value)) => {
                registers.write(to, &value);
                Step::Expression
            }
            None => Step::NoMatch,
        })
    }

    /// Expressions that write no register, or look something up.
    fn step_without_value(
        &mut self,
        position: &mut Position<'_>,
        expression: &Expression,
        state: &PacketState,
    ) -> Result<Step, PathError> {
        let registers = &position.registers;
        Ok(match expression {
            Expression::Compare {
                from,
                operator,
                value,
            } => compare(&registers.read(*from, value.len()), *operator, value).into(),
            Expression::Range {
                from,
                is_inverted,
                low,
                high,
            } => {
                let value = registers.read(*from, low.len());
                let is_inside =
                    value.compares(low, |value, low| value >= low && value <= &high[..]);
                is_inside.inverted_if(*is_inverted).into()
            }
            Expression::Lookup {
                set,
                key,
                to,
                is_inverted,
            } => self.look_up(position, set, *key, *to, *is_inverted),
            Expression::Object { kind, name } => {
                let ruleset = self.sources.ruleset;
                match ruleset.limit_beside(position.chain, *kind, name) {
                    Some(limit) => within(&[limit]),
                    None if *kind == object::TYPE_SYNPROXY => divert("synproxy", true, state),
                    None => Step::Expression,
                }
            }
            Expression::ObjectMap { set, key } => self.look_up_object(position, set, *key, state),
            Expression::Dynset {
                is_inverted: true, ..
            } => Step::NoMatch,
            Expression::Dynset {
                set,
                limits,
                timeout,
                ..
            } => {
                if let Some(set) = self.sources.ruleset.set_beside(position.chain, set) {
                    self.sources.lookups.on_update(set, *timeout);
                }
                within(limits)
            }
            Expression::Limit(limit) => within(&[*limit]),
            Expression::Match(condition) => {
                let lookups = &mut *self.sources.lookups;
                let looked_up = match condition {
                    XtMatch::Random => lookups.choose(2).map(|choice| choice == 0),
                    XtMatch::Recent(list) => lookups.is_recent(list),
                    XtMatch::Set(set) => lookups
                        .is_in_ip_set(set, state)
                        .map(|is_in| is_in != set.is_inverted),
                    _ => None,
                };
                match looked_up {
                    Some(is_so) => Answer::from(is_so).into(),
                    None => xt_match::matches(condition, state, self.sources.network)?.into(),
                }
            }
            Expression::Target(target) => self.target(target, state)?,
            Expression::Verdict(Verdict::Queue { is_bypassed: true }) => {
                Step::Effect(bypassed_queue())
            }
            Expression::Verdict(verdict) => Step::Effect(Effect::Verdict(verdict.clone())),
            Expression::Reject => Step::Effect(Effect::Stop(StopKind::Rejects, "reject")),
            Expression::Divert {
                name,
                is_for_tcp_only,
            } => divert(name, *is_for_tcp_only, state),
            Expression::ClampSegments => Step::Effect(Effect::ClampSegments),
            Expression::Notrack => Step::Effect(Effect::Untrack),
            Expression::MetaSet { key, from } if *key == expr::META_MARK => {
                let (mark, unknown) = registers.read(*from, 4).as_number();
                Step::Effect(Effect::Mark { mark, unknown })
            }
            Expression::MetaSet { key, from } if *key == expr::META_PRIORITY => {
                let value = registers.read(*from, 4);
                let bytes = value.bytes.first_chunk().copied();
                Step::Effect(Effect::Prioritize(bytes.filter(|_| value.is_known())))
            }
            Expression::ConntrackSet { key, from } if *key == expr::CT_MARK => {
                let (mark, unknown) = registers.read(*from, 4).as_number();
                Step::Effect(Effect::MarkConnection { mark, unknown })
            }
            Expression::ConntrackSet { key, .. } if *key == expr::CT_ZONE => Step::Effect(
                Effect::unknown("ct zone", "another zone of conntrack", true),
            ),
            Expression::PayloadWrite { base, offset, len } => {
                payload_write(*base, *offset, *len, state)
            }
            Expression::Nat {
                is_destination,
                address,
                port,
            } => {
                let translation =
                    Translation::of_registers(*is_destination, *address, *port, registers, state);
                Step::Effect(Effect::Translate(translation))
            }
            Expression::Redirect { port } => {
                let port = port.map(|port| Translation::port(port, registers));
                self.redirect(port, state)
            }
            Expression::Masquerade => self.masquerade(state)?,
            // Everything else was handled before, or concerns nothing.
            _ => Step::Expression,
        })
    }

    fn redirect(&mut self, port: Option<Result<u16, String>>, state: &PacketState) -> Step {
        let lookups = &mut *self.sources.lookups;
        let translation = Translation::redirect(self.hook, port, state, lookups);
        Step::Effect(Effect::Translate(translation))
    }

    fn masquerade(&mut self, state: &PacketState) -> Result<Step, PathError> {
        let Sources {
            network, lookups, ..
        } = self.sources;
        let to = super::effect::masquerade_source(state, *network, *lookups)?;
        Ok(Step::Effect(Effect::Translate(Translation::Masquerade(to))))
    }

    fn target(&mut self, target: &XtTarget, state: &PacketState) -> Result<Step, PathError> {
        let translate = |translation| Step::Effect(Effect::Translate(translation));
        Ok(match target {
            XtTarget::Reject => Step::Effect(Effect::Stop(StopKind::Rejects, "REJECT")),
            XtTarget::DestinationNat(range) => translate(Translation::of_range(true, range, state)),
            XtTarget::SourceNat(range) => translate(Translation::of_range(false, range, state)),
            XtTarget::Masquerade => self.masquerade(state)?,
            XtTarget::Redirect(range) => self.redirect(Translation::port_of_range(range), state),
            XtTarget::Mark { mark, mask } => Step::Effect(Effect::Mark {
                mark: state.mark & !mask ^ mark,
                unknown: state.unknown_mark & !mask,
            }),
            XtTarget::ConnectionMark {
                transfer,
                value,
                connection_mask,
                packet_mask,
            } => {
                let connection = &state.connection;
                Step::Effect(match transfer {
                    MarkTransfer::SetConnection => Effect::MarkConnection {
                        mark: connection.mark & !connection_mask ^ value,
                        unknown: connection.unknown_mark & !connection_mask,
                    },
                    MarkTransfer::ToConnection => Effect::MarkConnection {
                        mark: connection.mark & !connection_mask ^ (state.mark & packet_mask),
                        unknown: connection.unknown_mark & !connection_mask
                            | state.unknown_mark & packet_mask,
                    },
                    MarkTransfer::ToPacket if connection.tracking != Tracking::Tracked => {
                        return Ok(Step::Expression);
                    }
                    MarkTransfer::ToPacket => Effect::Mark {
                        mark: state.mark & !packet_mask ^ (connection.mark & connection_mask),
                        unknown: state.unknown_mark & !packet_mask
                            | connection.unknown_mark & connection_mask,
                    },
                })
            }
            XtTarget::Notrack => Step::Effect(Effect::Untrack),
            XtTarget::Zone => Step::Effect(Effect::unknown(
                "CT --zone",
                "another zone of conntrack",
                true,
            )),
            XtTarget::Queue { is_bypassed: true } => Step::Effect(bypassed_queue()),
            XtTarget::Queue { is_bypassed } => Step::Effect(Effect::Verdict(Verdict::Queue {
                is_bypassed: *is_bypassed,
            })),
            XtTarget::Divert {
                name,
                is_for_tcp_only,
            } => divert(name, *is_for_tcp_only, state),
            XtTarget::ClampSegments => Step::Effect(Effect::ClampSegments),
            XtTarget::Harmless => Step::Expression,
            XtTarget::Unknown(name) => Step::Effect(Effect::unknown(
                &format!("target {name} of iptables"),
                name,
                true,
            )),
        })
    }

    fn look_up(
        &mut self,
        position: &mut Position<'_>,
        set: &str,
        key: Register,
        to: Option<LookupTarget>,
        is_inverted: bool,
    ) -> Step {
        let ruleset = self.sources.ruleset;
        let Some(found) = ruleset.set_beside(position.chain, set) else {
            return Step::Unknown(format!("set {set}"));
        };
        let key = position.registers.read(key, found.key_len);
        if !key.is_known() {
            return self.look_up_unknown(position, found, &key.reason, to);
        }
        let element = match self.sources.lookups.find_element(found, &key.bytes) {
            Ok(element) => element,
            Err(error) => return Step::Unknown(format!("set {set}: {error}")),
        };
        if element.is_some() == is_inverted {
            return Step::NoMatch;
        }
        let Some(element) = element else {
            return Step::Expression;
        };
        let limited = within(&element.limits);
        match (to, element.data) {
            // A condition of the element comes before its verdict.
            (Some(LookupTarget::Verdict), Data::Verdict(verdict)) => match limited {
                Step::Unknown(reason) => Step::OneOf(vec![verdict], reason),
                Step::Within(limit) => {
                    position.within.get_or_insert(limit);
                    Step::Effect(Effect::Verdict(verdict))
                }
                _ => Step::Effect(Effect::Verdict(verdict)),
            },
            (Some(LookupTarget::Register(to)), Data::Value(value)) => {
                position.registers.write(to, &Bits::known(&value));
                limited
            }
            (None, _) => limited,
            (Some(_), _) => Step::Unknown(format!("data of set {set}")),
        }
    }

    /// The same with a key that is unknown: random, for example.
    fn look_up_unknown(
        &mut self,
        position: &mut Position<'_>,
        set: SetRef<'_>,
        reason: &str,
        to: Option<LookupTarget>,
    ) -> Step {
        let condition = format!("set {} by {reason}", set.set);
        let (Some(to), Ok(Some(mut all))) = (to, self.sources.lookups.list_elements(set)) else {
            return Step::Unknown(condition);
        };
        all.sort();
        all.dedup();
        let is_random = ["numgen", "hash"].contains(&reason);
        match to {
            LookupTarget::Verdict => {
                let verdicts = all.into_iter().filter_map(|data| match data {
                    Data::Verdict(verdict) => Some(verdict),
                    Data::None | Data::Value(_) => None,
                });
                let mut verdicts: Vec<Verdict> = verdicts.collect();
                match verdicts.pop() {
                    // Each random number has an element.
                    Some(verdict) if is_random && verdicts.is_empty() => {
                        Step::Effect(Effect::Verdict(verdict))
                    }
                    last => {
                        verdicts.extend(last);
                        Step::OneOf(verdicts, condition)
                    }
                }
            }
            LookupTarget::Register(to) => {
                let value = match &all[..] {
                    [Data::Value(value)] => Bits::known(value),
                    [Data::Value(value), ..] => Bits::unknown(value.len(), &condition),
                    _ => return Step::Unknown(condition),
                };
                position.registers.write(to, &value);
                if is_random {
                    Step::Expression
                } else {
                    Step::Unknown(condition)
                }
            }
        }
    }

    /// A map to objects, of which only limits are conditions.
    fn look_up_object(
        &mut self,
        position: &Position<'_>,
        set: &str,
        key: Register,
        state: &PacketState,
    ) -> Step {
        let ruleset = self.sources.ruleset;
        let Some(found) = ruleset.set_beside(position.chain, set) else {
            return Step::Unknown(format!("set {set}"));
        };
        let key = position.registers.read(key, found.key_len);
        if !key.is_known() {
            return Step::Unknown(format!("set {set} by {}", key.reason));
        }
        match self.sources.lookups.find_element(found, &key.bytes) {
            Err(error) => Step::Unknown(format!("set {set}: {error}")),
            Ok(None) => Step::NoMatch,
            Ok(Some(_)) => match ruleset.objects_of_set(position.chain, set) {
                Some(object::TYPE_LIMIT | object::TYPE_QUOTA | object::TYPE_CONNLIMIT) => {
                    Step::Unknown(format!("limit of set {set}"))
                }
                Some(object::TYPE_SYNPROXY) => divert("synproxy", true, state),
                _ => Step::Expression,
            },
        }
    }
}

fn compare(value: &Bits, operator: u32, with: &[u8]) -> Answer {
    match operator {
        expr::CMP_EQ => value.is_equal(with),
        expr::CMP_NEQ => value.is_equal(with).inverted_if(true),
        expr::CMP_LT => value.compares(with, |value, with| value < with),
        expr::CMP_LTE => value.compares(with, |value, with| value <= with),
        expr::CMP_GT => value.compares(with, |value, with| value > with),
        _ => value.compares(with, |value, with| value >= with),
    }
}

/// Limits are taken as not exceeded: so the rule does not match if one of them is for packets beyond it.
fn within(limits: &[Limit]) -> Step {
    if let Some(over) = limits.iter().find(|limit| limit.is_over) {
        return Step::Unknown(format!("{} over", over.name));
    }
    limits
        .first()
        .map_or(Step::Expression, |limit| Step::Within(limit.name))
}

fn divert(name: &'static str, is_for_tcp_only: bool, state: &PacketState) -> Step {
    if xt_match::is_concerned(state, is_for_tcp_only) {
        Step::Effect(Effect::Stop(StopKind::Diverts, name))
    } else {
        Step::NoMatch
    }
}

/// A program of user space may drop the packet; without one it passes.
fn bypassed_queue() -> Effect {
    Effect::unknown("whether a program reads the queue", "queue", true)
}

/// A rule that writes the packet: addresses and ports are those that matter here.
fn payload_write(base: u32, offset: usize, len: usize, state: &PacketState) -> Step {
    let addresses = if state.is_v4() { 12..20 } else { 8..40 };
    let end = offset.saturating_add(len);
    let is_harmful = match base {
        expr::PAYLOAD_NETWORK_HEADER => offset < addresses.end && end > addresses.start,
        expr::PAYLOAD_TRANSPORT_HEADER => offset < 4,
        _ => false,
    };
    if is_harmful {
        let effect = "an address or a port without conntrack";
        Step::Effect(Effect::unknown("a written field", effect, true))
    } else {
        Step::Expression
    }
}
