//! The chains that pick a slot: one for each number of slots in use.

use std::fmt;

use super::{
    Family, Field, Set, SetKind,
    rule::{
        Rule,
        Statement::{self, Dnat, Drop, Goto, Record, ResetPriority},
    },
    rules::{Refusal, from_external_client, frontend, rule},
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
    /// With external policy Local: the number of slots for external clients, which have their own backends, or are dropped with
    /// none. None if they are served like all others.
    pub(crate) external_slots: Option<u32>,
}

impl fmt::Display for PickChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node_port = if self.node_port { "-node-port" } else { "" };
        let choice = self.choice.infix();
        write!(
            f,
            "pick{choice}{node_port}-v{}-{}",
            self.family.digit(),
            self.slots
        )?;
        self.external_slots
            .map_or(Ok(()), |slots| write!(f, "{EXTERNAL_INFIX}{slots}"))
    }
}

/// The part of a chain's name before the slots for external clients.
const EXTERNAL_INFIX: &str = "-external-";

/// The most slots that a number has room for.
pub(crate) const MAX_SLOTS: u32 = 0xffff;
/// The most slots for external clients that a number has room for: it holds one more than their number, or 0 for none.
pub(crate) const MAX_EXTERNAL_SLOTS: u32 = EXTERNAL_MASK - 1;

// The parts of a number: the slots in the lower half, which nft prints after the colon.
const EXTERNAL_SHIFT: u32 = 16;
const EXTERNAL_MASK: u32 = 0x1fff;
const CHOICE_SHIFT: u32 = 29;
const CHOICE_MASK: u32 = 0b11;
const NODE_PORT: u32 = 1 << 31;

impl PickChain {
    /// The number by which the frontends of a family name the chain: the same in every table, and never 0.
    pub(crate) fn number(self) -> u32 {
        let choice = Choice::ALL
            .into_iter()
            .zip(0..)
            .find(|(choice, _)| *choice == self.choice);
        let choice = choice.map_or(0, |(_, number)| number);
        let external_slots = self.external_slots.map_or(0, |slots| slots + 1);
        debug_assert!(
            self.slots <= MAX_SLOTS && external_slots <= EXTERNAL_MASK,
            "{self} has no number"
        );
        let node_port = if self.node_port { NODE_PORT } else { 0 };
        node_port | choice << CHOICE_SHIFT | external_slots << EXTERNAL_SHIFT | self.slots
    }

    /// The chain of this number; none if it is not the number of a pick chain.
    pub(crate) fn by_number(family: Family, number: u32) -> Option<Self> {
        let choice = Choice::ALL
            .into_iter()
            .nth((number >> CHOICE_SHIFT & CHOICE_MASK) as usize)?;
        let slots = Some(number & MAX_SLOTS).filter(|slots| *slots > 0)?;
        let external_slots = (number >> EXTERNAL_SHIFT & EXTERNAL_MASK).checked_sub(1);
        Some(Self {
            family,
            node_port: number & NODE_PORT != 0,
            choice,
            slots,
            external_slots,
        })
    }

    /// The chain of this name; none if it is not the name of a pick chain.
    pub(super) fn by_name(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("pick")?;
        let (rest, external_slots) = match rest.split_once(EXTERNAL_INFIX) {
            Some((rest, slots)) => (rest, Some(slots.parse().ok()?)),
            None => (rest, None),
        };
        let (rest, slots) = rest.rsplit_once('-')?;
        let of_choice = |choice: &Choice| {
            rest.strip_prefix(choice.infix())
                .map(|rest| (*choice, rest))
        };
        let mut choices = Choice::ALL.iter().rev();
        let (choice, rest) = choices.find_map(of_choice)?;
        let (node_port, rest) = rest
            .strip_prefix("-node-port")
            .map_or((false, rest), |rest| (true, rest));
        let family = Family::ALL
            .into_iter()
            .find(|family| rest == format!("-v{}", family.digit()))?;
        let slots = slots.parse().ok().filter(|slots| *slots > 0)?;
        Some(Self {
            family,
            node_port,
            choice,
            slots,
            external_slots,
        })
    }

    /// The slots of a client, and their map.
    pub(crate) const fn slots_of(self, is_external: bool) -> (Set, u32) {
        match self.external_slots {
            Some(slots) if is_external => (Set::new(SetKind::BackendsExternal, self.family), slots),
            _ => (Set::new(SetKind::Backends, self.family), self.slots),
        }
    }

    /// The first rule that finds a backend ends the chain. The first rule restores the packet's priority, which held the number
    /// of the chain.
    pub(super) fn rules(self) -> Vec<Rule> {
        let recall = || {
            let reason = "The client has an affinity entry: it gets the same backend.";
            let memory = Set::new(SetKind::Affinity, self.family);
            (self.choice == Choice::Sticky)
                .then(|| rule(reason, [self.translate(Field::Saddr(self.family), memory)]))
        };
        let draw = |reason, is_external, who| rule(reason, [who, self.draw(is_external)]);
        let from_external =
            |reason, verdict| rule(reason, [from_external_client(self.family), vec![verdict]]);
        let mut rules = Vec::new();
        match self.external_slots {
            None => rules.extend(recall()),
            // Affinity entries do not distinguish external clients.
            Some(0) => {
                rules.push(from_external(
                    "No backend on this node: the policy allows external clients no other backend.",
                    Goto(Refusal::Policy.chain(self.family, self.node_port)),
                ));
                let inside = Set::new(SetKind::ServedInside, self.family);
                rules.push(rule(
                    "The counter of the frontend counts dropped attempts too, so this one counts the others.",
                    [vec![Record(inside, frontend(self.family, self.node_port))]],
                ));
                rules.extend(recall());
            }
            Some(_) => {
                rules.extend(recall());
                let reason = "External clients get backends of this node.";
                rules.push(draw(reason, true, from_external_client(self.family)));
                rules.push(from_external(
                    "Their slot is empty: no other backend is for them.",
                    Drop,
                ));
            }
        }
        rules.push(draw(
            "Selects one of the slots; each has a backend.",
            false,
            Vec::new(),
        ));
        if let Some(first) = rules.first_mut() {
            first.statements.insert(0, ResetPriority);
        }
        rules
    }

    fn draw(self, is_external: bool) -> Vec<Statement> {
        let (map, slots) = self.slots_of(is_external);
        let slot = match self.choice {
            Choice::Random | Choice::Sticky => Field::Random(slots),
            Choice::Client => Field::ClientHash(self.family, slots),
        };
        self.translate(slot, map)
    }

    /// Translates to the value in the map under the frontend and `last`.
    fn translate(self, last: Field, map: Set) -> Vec<Statement> {
        let mut key = frontend(self.family, self.node_port);
        key.push(last);
        vec![Dnat(self.family, key, Some(map))]
    }
}
