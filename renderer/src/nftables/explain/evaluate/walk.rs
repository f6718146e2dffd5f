//! Takes a new connection through the hooks, and executes the rules of the chains there.

use std::{borrow::Cow, net::SocketAddr};

use contiv_model::{Flow, InterfacePattern};

use super::{FlowOutcome, Tables, branch::Branch, tables::Lookup};
use crate::nftables::{
    desired::element::{FrontendKey, Key, Value},
    layout::{
        BaseChain, Comparison, Constant, DemandChain, Field, Hook, INPUT, OUTPUT, POSTROUTING,
        PREROUTING, Rule, Set, SetKind, Statement, chains,
    },
};

/// The rules of a chain.
type Rules = Cow<'static, [Rule]>;

/// A connection that is evaluated by the rules.
struct Walk<'w, 'a, T> {
    lookup: &'w mut Lookup<'a, T>,
    flow: &'w Flow,
    /// The interface where the packet comes in, if it is known and its name is valid.
    interface: Option<InterfacePattern>,
    /// Base chains in the order in which packets of one hook pass them.
    bases: Vec<(Hook, Rules)>,
}

/// How the traversal of a chain ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HookVerdict {
    Accept,
    Drop,
    Reject,
}

/// The continuation after a statement.
enum Next {
    Statement,
    Rule,
    Goto(Rules),
    Jump(Rules),
    End(HookVerdict),
    /// The branch has divided into others, which have ended.
    Nothing,
}

/// The branches of the connection, with the outcome of each.
pub(super) fn walk<T: Tables>(
    lookup: &mut Lookup<'_, T>,
    flow: &Flow,
) -> Result<Vec<(Branch, FlowOutcome)>, T::Error> {
    let interface = flow.interface().and_then(|name| name.0.parse().ok());
    // An invalid name matches no interface.
    let interface = interface.filter(|name: &InterfacePattern| !name.is_prefix());
    let bases = base_chains(lookup)?;
    Walk {
        lookup,
        flow,
        interface,
        bases,
    }
    .outcomes()
}

/// The base chains in the order in which packets of a hook pass them.
fn base_chains<T: Tables>(lookup: &mut Lookup<'_, T>) -> Result<Vec<(Hook, Rules)>, T::Error> {
    let fixed = chains()
        .iter()
        .filter_map(|chain| Some((chain.hook?, Cow::from(&*chain.rules))));
    let mut bases: Vec<_> = fixed.collect();
    for base in BaseChain::ALL {
        if lookup.has_chain(base)? {
            let chain = DemandChain::Base(base);
            bases.extend(chain.hook().map(|hook| (hook, Cow::from(chain.rules()))));
        }
    }
    // Of those with the same priority the kernel calls first the one that came last.
    bases.reverse();
    bases.sort_by_key(|(hook, _)| hook.priority);
    Ok(bases)
}

impl<T: Tables> Walk<'_, '_, T> {
    /// Takes the connection through the hooks.
    fn outcomes(&mut self) -> Result<Vec<(Branch, FlowOutcome)>, T::Error> {
        let begins_here = self.lookup.is_local_address(self.flow.from());
        let mut outcomes = Vec::new();
        let first = if begins_here { OUTPUT } else { PREROUTING };
        let to = SocketAddr::new(self.flow.to(), self.flow.port());
        for branch in self.pass(vec![Branch::to(to)], first, &mut outcomes)? {
            // The next hooks depend on the destination after the first hook.
            let hooks: &[u32] = match (begins_here, self.lookup.is_local_address(branch.to.ip())) {
                (false, true) => &[INPUT],
                // No chain is at the hook for forwarded packets.
                (_, false) => &[POSTROUTING],
                (true, true) => &[POSTROUTING, PREROUTING, INPUT],
            };
            let mut branches = vec![branch];
            for hook in hooks {
                for branch in &mut branches {
                    branch.is_by_loopback = begins_here && *hook != POSTROUTING;
                }
                branches = self.pass(branches, *hook, &mut outcomes)?;
            }
            outcomes.extend(branches.into_iter().map(|branch| {
                let outcome = self.accepted(&branch);
                (branch, outcome)
            }));
        }
        Ok(outcomes)
    }

    /// The outcome of a packet that nothing has refused.
    fn accepted(&self, branch: &Branch) -> FlowOutcome {
        if branch.is_translated {
            FlowOutcome::Served {
                backend: branch.to,
                masqueraded: branch.is_masqueraded,
            }
        } else if branch.is_masqueraded && !self.lookup.is_local_address(branch.to.ip()) {
            FlowOutcome::Egress
        } else {
            FlowOutcome::Untouched
        }
    }

    /// The branches that are left after the base chains of a hook.
    fn pass(
        &mut self,
        mut branches: Vec<Branch>,
        hook: u32,
        refused: &mut Vec<(Branch, FlowOutcome)>,
    ) -> Result<Vec<Branch>, T::Error> {
        let bases: Vec<_> = self
            .bases
            .iter()
            .filter(|(base, _)| base.number == hook)
            .cloned()
            .collect();
        for (base, rules) in bases {
            let mut ends = Vec::new();
            for mut branch in std::mem::take(&mut branches) {
                // The translations of the destination and of the source are decided once for each connection.
                let is_decided = branch.is_by_loopback
                    || match hook {
                        PREROUTING | OUTPUT => branch.is_translated,
                        _ => branch.is_masqueraded,
                    };
                if base.kind == "nat" && is_decided {
                    branches.push(branch);
                    continue;
                }
                branch.enters_chain();
                self.run(rules.clone(), branch, &mut ends)?;
            }
            for (branch, verdict) in ends {
                let set = branch.decisive_set();
                match verdict {
                    HookVerdict::Accept => branches.push(branch),
                    HookVerdict::Drop => refused.push((branch, FlowOutcome::Dropped { set })),
                    HookVerdict::Reject => refused.push((branch, FlowOutcome::Rejected { set })),
                }
            }
        }
        Ok(branches)
    }

    /// Runs a base chain.
    fn run(
        &mut self,
        mut rules: Rules,
        mut branch: Branch,
        ends: &mut Vec<(Branch, HookVerdict)>,
    ) -> Result<(), T::Error> {
        // The return positions of jumps.
        let mut stack: Vec<(Rules, usize)> = Vec::new();
        let mut at = 0;
        loop {
            let Some(rule) = rules.get(at) else {
                let Some(back) = stack.pop() else { break };
                (rules, at) = back;
                continue;
            };
            at += 1;
            match self.execute(rule, &mut branch, ends)? {
                Next::Statement | Next::Rule => {}
                Next::Goto(to) => (rules, at) = (to, 0),
                Next::Jump(to) => {
                    stack.push((std::mem::replace(&mut rules, to), at));
                    at = 0;
                }
                Next::End(verdict) => {
                    ends.push((branch, verdict));
                    return Ok(());
                }
                Next::Nothing => return Ok(()),
            }
        }
        // The policy of all base chains.
        ends.push((branch, HookVerdict::Accept));
        Ok(())
    }

    fn execute(
        &mut self,
        rule: &Rule,
        branch: &mut Branch,
        ends: &mut Vec<(Branch, HookVerdict)>,
    ) -> Result<Next, T::Error> {
        for statement in &rule.statements {
            if statement
                .header()
                .is_some_and(|family| family != self.lookup.family())
            {
                return Ok(Next::Rule);
            }
            let next = self.step(statement, branch, ends)?;
            if !matches!(next, Next::Statement) {
                return Ok(next);
            }
        }
        Ok(Next::Rule)
    }

    fn step(
        &mut self,
        statement: &Statement,
        branch: &mut Branch,
        ends: &mut Vec<(Branch, HookVerdict)>,
    ) -> Result<Next, T::Error> {
        let if_matches = |matches| if matches { Next::Statement } else { Next::Rule };
        Ok(match statement {
            Statement::Match(field, comparison, constant) => {
                if_matches(self.is(*field, *constant, branch) == (*comparison == Comparison::Is))
            }
            // Flows have no other protocols, and counting decides nothing.
            Statement::MatchProtocols | Statement::Counter | Statement::Record(..) => {
                Next::Statement
            }
            Statement::MatchAny(flags) => if_matches(flags.iter().any(|flag| branch.has(*flag))),
            Statement::MatchSet(key, comparison, set) => {
                let is_wanted = *comparison == Comparison::Is;
                let is_in = self.is_in(key, *set, branch)?;
                branch.record_lookup(*set, !is_in && !is_wanted);
                if_matches(is_in == is_wanted)
            }
            Statement::ResetPriority => {
                branch.priority = 0;
                Next::Statement
            }
            Statement::SetPriority(key, map) => {
                branch.record_lookup(*map, false);
                match self.value(key, *map, branch)? {
                    Some(Value::Goto(chain)) => {
                        let Some((_, number)) = chain.number() else {
                            return Ok(Next::Rule);
                        };
                        branch.priority = number;
                        Next::Statement
                    }
                    _ => Next::Rule,
                }
            }
            Statement::Vmap(key, map) => match self.value(key, *map, branch)? {
                Some(Value::Goto(chain)) => Next::Goto(chain.rules().into()),
                _ => Next::Rule,
            },
            Statement::Dnat(_, key, Some(map)) => self.translate(key, *map, branch, ends)?,
            // Only a trial of the kernel has no map. The output interface is not known; the connection is masqueraded in any case.
            Statement::Dnat(_, _, None) | Statement::SnatByMap(..) => Next::Rule,
            Statement::Update { timeout, .. } => {
                branch.timeout = Some(*timeout);
                Next::Statement
            }
            Statement::Masquerade => {
                branch.is_masqueraded = true;
                Next::End(HookVerdict::Accept)
            }
            // Nobody can have port 0.
            Statement::DnatToPort(..) | Statement::RejectWithTcpReset | Statement::Reject => {
                Next::End(HookVerdict::Reject)
            }
            // With `snat` the node itself connects to one of its addresses, and still comes from one.
            Statement::Accept | Statement::Snat(..) => Next::End(HookVerdict::Accept),
            Statement::Drop => Next::End(HookVerdict::Drop),
            Statement::Goto(chain) => Next::Goto(rules_of(chain)),
            Statement::Jump(chain) => Next::Jump(rules_of(chain)),
        })
    }

    /// Translates to what the map has for the key. With a drawn key it ends one branch for each backend; the one that is left
    /// has drawn a slot without any.
    fn translate(
        &mut self,
        key: &[Field],
        map: Set,
        branch: &mut Branch,
        ends: &mut Vec<(Branch, HookVerdict)>,
    ) -> Result<Next, T::Error> {
        let Some((last, frontend)) = key.split_last() else {
            return Ok(Next::Rule);
        };
        let (Field::Random(slots) | Field::ClientHash(_, slots)) = *last else {
            branch.asks_memory = true;
            if let Some(Value::Backend(backend)) = self.value(key, map, branch)? {
                ends.push((branch.remembered(backend.into()), HookVerdict::Accept));
            }
            // It may be forgotten by the next time.
            return Ok(Next::Rule);
        };
        let Some(Key::Frontend(frontend)) = self.key(frontend, branch) else {
            return Ok(Next::Rule);
        };
        branch.drawn_by = Some(*last);
        branch.record_lookup(map, false);
        let mut empty = None;
        for (backend, slots) in self.lookup.slots(map, frontend, slots)? {
            match backend {
                Some(backend) => {
                    ends.push((branch.translated(backend, slots), HookVerdict::Accept));
                }
                None => empty = Some(slots),
            }
        }
        let Some(empty) = empty else {
            return Ok(Next::Nothing);
        };
        branch.slots = empty;
        Ok(Next::Rule)
    }

    fn is(&self, field: Field, constant: Constant, branch: &Branch) -> bool {
        match (field, constant) {
            (Field::Nfproto, Constant::Family(family)) => family == self.lookup.family(),
            (Field::L4Proto, Constant::Protocol(protocol)) => protocol == self.flow.protocol(),
            (Field::SaddrType, Constant::Local) => self.lookup.is_local_address(self.flow.from()),
            (Field::DaddrType, Constant::Local) => self.lookup.is_local_address(branch.to.ip()),
            (Field::InputInterface, Constant::Interface(name)) if !branch.is_by_loopback => self
                .interface
                .is_some_and(|interface| interface.stem() == name),
            (Field::InputInterface, Constant::Interface(name)) => name == "lo",
            // Rules compare it where packets leave only.
            (Field::OutputInterface, Constant::Interface(name)) => {
                let is_local = |address| self.lookup.is_local_address(address);
                name == "lo" && is_local(self.flow.from()) && is_local(branch.to.ip())
            }
            // No rule compares others.
            _ => false,
        }
    }

    /// True if the set has the key. A packet with an unknown input interface is treated as one from an interface where services
    /// answer, and not from a pod.
    fn is_in(&mut self, key: &[Field], set: Set, branch: &Branch) -> Result<bool, T::Error> {
        let is_unknown = key == [Field::InputInterface]
            && self.flow.interface().is_none()
            && !branch.is_by_loopback;
        if is_unknown {
            return Ok(set.kind == SetKind::ServiceInterfaces);
        }
        Ok(self.value(key, set, branch)?.is_some())
    }

    /// The element's value; none without an element.
    fn value(
        &mut self,
        key: &[Field],
        set: Set,
        branch: &Branch,
    ) -> Result<Option<Value>, T::Error> {
        let Some(key) = self.key(key, branch) else {
            return Ok(None);
        };
        self.lookup.value(set.kind, key)
    }

    /// The key that fields make; none if no set can have it.
    fn key(&self, fields: &[Field], branch: &Branch) -> Option<Key> {
        let address = |field: &Field| match field {
            Field::Saddr(_) => Some(self.flow.from()),
            Field::Daddr(_) => Some(branch.to.ip()),
            Field::OriginalDaddr(_) => Some(self.flow.to()),
            Field::DaddrMasked(family) | Field::OriginalDaddrMasked(family) => {
                Some(family.unspecified())
            }
            _ => None,
        };
        let frontend = |of: &Field, port: &Field| {
            let port = match port {
                Field::Dport => branch.to.port(),
                Field::OriginalDport => self.flow.port(),
                _ => return None,
            };
            Some(FrontendKey {
                address: address(of)?,
                protocol: self.flow.protocol(),
                port,
            })
        };
        match fields {
            [Field::Priority] => Some(Key::Number(branch.priority)),
            [Field::InputInterface] if branch.is_by_loopback => {
                "lo".parse().ok().map(Key::Interface)
            }
            [Field::InputInterface] => self.interface.map(Key::Interface),
            [of] => address(of).map(Key::Address),
            [from, to] => address(from)
                .filter(|from| Some(*from) == address(to))
                .map(Key::Pair),
            [of, Field::L4Proto | Field::CtProtocol, port] => frontend(of, port).map(Key::Frontend),
            [of, Field::L4Proto | Field::CtProtocol, port, client] => {
                Some(Key::Client(frontend(of, port)?, address(client)?))
            }
            _ => None,
        }
    }
}

/// The rules of a chain that is always there.
fn rules_of(name: &str) -> Rules {
    chains()
        .iter()
        .find(|chain| chain.name == name)
        .map_or(Cow::Borrowed(&[]), |chain| Cow::from(&*chain.rules))
}
