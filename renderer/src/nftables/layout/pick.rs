//! The chains that pick a slot: one for each number of slots in use.

use std::fmt;

use super::{
    Family, Set, SetKind,
    expression::{CLIENT_HASH_SEED, Expression, FIRST, Rule, after_address, after_frontend},
    skeleton::from_outside,
};

/// How a slot is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Choice {
    /// All slots are equally likely.
    Random,
    /// The backend of the client's affinity entry, or else at random.
    Sticky,
    /// By a hash of the client's address, so that a client always gets the same slot.
    Client,
}

impl Choice {
    const ALL: [Self; 3] = [Self::Random, Self::Sticky, Self::Client];

    /// The corresponding part of a chain's name.
    const fn infix(self) -> &'static str {
        match self {
            Self::Random => "",
            Self::Sticky => "-sticky",
            Self::Client => "-client",
        }
    }
}

/// The chain that sends a new connection to one of `slots` backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PickChain {
    pub(crate) family: Family,
    /// For node ports: the key has the unspecified address.
    pub(crate) node_port: bool,
    pub(crate) choice: Choice,
    /// At least 1.
    pub(crate) slots: u32,
    /// With external policy Local: the number of slots for outside clients, which have their own backends, or are dropped with
    /// none. None if they are served like all others.
    pub(crate) outside: Option<u32>,
}

impl fmt::Display for PickChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node_port = if self.node_port { "-node-port" } else { "" };
        let choice = self.choice.infix();
        write!(f, "pick{choice}{node_port}-v{}-{}", self.family.digit(), self.slots)?;
        self.outside.map_or(Ok(()), |slots| write!(f, "{OUTSIDE}{slots}"))
    }
}

/// The part of a chain's name before the slots for outside clients.
const OUTSIDE: &str = "-external-";

/// The most slots that a number has room for.
pub(crate) const MAX_SLOTS: u32 = 0xffff;
/// The most slots for outside clients that a number has room for: it holds one more than their number, or 0 for none.
pub(crate) const MAX_OUTSIDE_SLOTS: u32 = OUTSIDE_MASK - 1;

// The parts of a number: the slots in the lower half, which nft prints after the colon.
const OUTSIDE_SHIFT: u32 = 16;
const OUTSIDE_MASK: u32 = 0x1fff;
const CHOICE_SHIFT: u32 = 29;
const CHOICE_MASK: u32 = 0b11;
const NODE_PORT: u32 = 1 << 31;

impl PickChain {
    /// The number by which the frontends of a family name the chain: the same in every table, and never 0.
    pub(crate) fn number(self) -> u32 {
        let choice = Choice::ALL.into_iter().zip(0..).find(|(choice, _)| *choice == self.choice);
        let choice = choice.map_or(0, |(_, number)| number);
        let outside = self.outside.map_or(0, |slots| slots + 1);
        debug_assert!(self.slots <= MAX_SLOTS && outside <= OUTSIDE_MASK, "{self} has no number");
        let node_port = if self.node_port { NODE_PORT } else { 0 };
        node_port | choice << CHOICE_SHIFT | outside << OUTSIDE_SHIFT | self.slots
    }

    /// The chain of this number; none if it is not the number of a pick chain.
    pub(crate) fn by_number(family: Family, number: u32) -> Option<Self> {
        let choice = Choice::ALL.into_iter().nth((number >> CHOICE_SHIFT & CHOICE_MASK) as usize)?;
        let slots = Some(number & MAX_SLOTS).filter(|slots| *slots > 0)?;
        let outside = (number >> OUTSIDE_SHIFT & OUTSIDE_MASK).checked_sub(1);
        Some(Self { family, node_port: number & NODE_PORT != 0, choice, slots, outside })
    }

    /// The chain of this name; none if it is not the name of a pick chain.
    pub(super) fn by_name(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("pick")?;
        let (rest, outside) = match rest.split_once(OUTSIDE) {
            Some((rest, slots)) => (rest, Some(slots.parse().ok()?)),
            None => (rest, None),
        };
        let (rest, slots) = rest.rsplit_once('-')?;
        let of_choice = |choice: &Choice| rest.strip_prefix(choice.infix()).map(|rest| (*choice, rest));
        let mut choices = Choice::ALL.iter().rev();
        let (choice, rest) = choices.find_map(of_choice)?;
        let (node_port, rest) = rest.strip_prefix("-node-port").map_or((false, rest), |rest| (true, rest));
        let family = Family::ALL.into_iter().find(|family| rest == format!("-v{}", family.digit()))?;
        let slots = slots.parse().ok().filter(|slots| *slots > 0)?;
        Some(Self { family, node_port, choice, slots, outside })
    }

    /// The slots of a client, and their map.
    pub(crate) const fn slots_of(self, outside: bool) -> (Set, u32) {
        match self.outside {
            Some(slots) if outside => (Set::new(SetKind::BackendsExternal, self.family), slots),
            _ => (Set::new(SetKind::Backends, self.family), self.slots),
        }
    }

    /// The steps of the chain, one rule each. The first that finds a backend ends it.
    fn steps(self) -> Vec<Step> {
        let recall = || (self.choice == Choice::Sticky).then_some(Step::Recall);
        let mut steps = Vec::new();
        match self.outside {
            None => steps.extend(recall()),
            // Affinity entries do not distinguish outside clients.
            Some(0) => steps.extend([Step::DropOutside].into_iter().chain(recall())),
            Some(_) => {
                steps.extend(recall());
                steps.extend([Step::Draw { outside: true }, Step::DropOutside]);
            }
        }
        steps.push(Step::Draw { outside: false });
        steps
    }

    /// The first rule puts back the packet's priority, which held the number of the chain.
    pub(super) fn rules(self) -> Vec<Rule> {
        let rule = |(number, step)| {
            let mut rule = if number == 0 { vec![Expression::ResetPriority] } else { Vec::new() };
            rule.extend(self.rule(step));
            rule
        };
        (0..).zip(self.steps()).map(rule).collect()
    }

    fn rule(self, step: Step) -> Rule {
        let everyone = || vec![Expression::Family(self.family)];
        let outside = || from_outside(self.family);
        match step {
            Step::Recall => {
                let client = Expression::Saddr(self.family, after_frontend(self.family));
                [everyone(), self.pick(client, self.memory())].concat()
            }
            Step::Draw { outside: true } => [outside(), self.draw(true)].concat(),
            Step::Draw { outside: false } => [everyone(), self.draw(false)].concat(),
            Step::DropOutside => [outside(), vec![Expression::Drop]].concat(),
        }
    }

    fn draw(self, outside: bool) -> Rule {
        let (map, slots) = self.slots_of(outside);
        let at = after_frontend(self.family);
        let slot = match self.choice {
            Choice::Random | Choice::Sticky => Expression::Random(slots, at),
            Choice::Client => Expression::ClientHash(self.family, slots, at),
        };
        self.pick(slot, map)
    }

    /// Translates to the value in the map under the frontend and `last`.
    fn pick(self, last: Expression, map: Set) -> Rule {
        let mut rule = vec![Expression::Daddr(self.family, FIRST)];
        if self.node_port {
            rule.push(Expression::MaskAway(self.family, FIRST));
        }
        let protocol = after_address(self.family);
        rule.extend([Expression::L4Proto(protocol), Expression::Dport(protocol + 1), last]);
        rule.extend([Expression::DataOf(map), Expression::Dnat(self.family)]);
        rule
    }

    const fn memory(self) -> Set {
        Set::new(SetKind::Affinity, self.family)
    }

    /// The rules in nft's language.
    pub(super) fn rule_texts(self) -> Vec<String> {
        let (ip, digit) = (self.family.nft(), self.family.digit());
        let outside =
            format!("{ip} saddr != @pods{digit} iifname != @pod-interfaces{digit} fib saddr type != local");
        let mask = if self.node_port { format!(" & {}", self.family.unspecified()) } else { String::new() };
        let pick = |last: &str, map: Set| {
            format!("dnat {ip} to {ip} daddr{mask} . meta l4proto . th dport . {last} map @{}", map.name())
        };
        let draw = |outside| {
            let (map, slots) = self.slots_of(outside);
            match self.choice {
                Choice::Random | Choice::Sticky => pick(&format!("numgen random mod {slots}"), map),
                Choice::Client => {
                    let seed = CLIENT_HASH_SEED;
                    pick(&format!("jhash {ip} saddr mod {slots} seed {seed:#x}"), map)
                }
            }
        };
        let text = |step| match step {
            Step::Recall => pick(&format!("{ip} saddr"), self.memory()),
            Step::Draw { outside: true } => format!("{outside} {}", draw(true)),
            Step::Draw { outside: false } => draw(false),
            Step::DropOutside => format!("{outside} drop"),
        };
        let head = |number| if number == 0 { "meta priority set none " } else { "" };
        (0..).zip(self.steps()).map(|(number, step)| format!("{}{}", head(number), text(step))).collect()
    }
}

/// One rule of a pick chain.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The backend of the client's affinity entry.
    Recall,
    /// A random backend for everyone; or for outside clients, of theirs.
    Draw { outside: bool },
    /// Drops packets of outside clients.
    DropOutside,
}
