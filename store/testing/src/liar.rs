//! Lies about events of an etcd's watch, by seed. Pure.

use std::time::Duration;

use etcd_client::proto::{PbEvent, PbWatchResponse};
use rand::{RngExt, SeedableRng, rngs::SmallRng, seq::SliceRandom};

/// `DELETE` of etcd's `mvccpb.Event.EventType`.
const DELETE: i32 = 1;
/// The longest delay of an event.
const MAX_DELAY: Duration = Duration::from_secs(30);
/// After how many others a repeated event comes again, at most.
const MAX_REPEAT_DISTANCE: u32 = 50;

/// A lie about one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LieKind {
    /// It does not come.
    Lost,
    /// It does not come, and its key is not to be written again for minutes.
    LostLastOfKey,
    /// It does not come, and nothing is to be written again for minutes.
    LostLastOfAll,
    /// A deletion does not come, and its key is not to be written again for minutes.
    LostDeletion,
    /// It comes twice.
    RepeatedAtOnce,
    /// It comes again after others.
    RepeatedLater,
    /// The next one comes first.
    SwappedWithNext,
    /// A bit of the value is another.
    AlteredValue,
    /// A bit of the key is another.
    AlteredKey,
    /// It is a deletion and no write, or the other way.
    AlteredType,
    /// A bit of its version or of one of its revisions is another.
    AlteredNumber,
    /// It comes late, and others overtake it.
    Delayed,
    /// It comes late, and so do the following ones.
    DelayedWithFollowing,
}

impl LieKind {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Lost,
        Self::LostLastOfKey,
        Self::LostLastOfAll,
        Self::LostDeletion,
        Self::RepeatedAtOnce,
        Self::RepeatedLater,
        Self::SwappedWithNext,
        Self::AlteredValue,
        Self::AlteredKey,
        Self::AlteredType,
        Self::AlteredNumber,
        Self::Delayed,
        Self::DelayedWithFollowing,
    ];

    /// Whether this event can be the object of such a lie. A part of a message may go on with the same revision.
    fn suits(self, event: &PbEvent, is_part: bool) -> bool {
        match self {
            Self::SwappedWithNext => !is_part && event.kv.is_some(),
            Self::LostDeletion => event.r#type == DELETE,
            Self::AlteredValue => event.kv.as_ref().is_some_and(|pair| !pair.value.is_empty()),
            _ => event.kv.is_some(),
        }
    }
}

/// A lie that was told.
#[derive(Debug, Clone)]
pub struct Lie {
    /// What is untrue.
    pub kind: LieKind,
    /// The key of the event.
    pub key: Vec<u8>,
    /// Why nobody needs to notice it, if that is so.
    pub excuse: Option<&'static str>,
}

impl Lie {
    /// Why nobody needed to notice it: to be asked when nobody has.
    pub fn excuse(&self) -> Option<&'static str> {
        let is_late = matches!(self.kind, LieKind::Delayed | LieKind::DelayedWithFollowing);
        let came_late = "it came late, nothing later came before it, and no replay looked";
        self.excuse.or(is_late.then_some(came_late))
    }
}

/// What becomes of a message.
#[derive(Debug, Default)]
pub struct Passed {
    /// None if it is lost.
    pub message: Option<PbWatchResponse>,
    /// How much later it comes, as does what follows it.
    pub delay: Duration,
    /// An event that comes so much later still, and alone.
    pub late: Option<(Duration, PbWatchResponse)>,
    /// What is untrue in it.
    pub lie: Option<Lie>,
}

/// Passes messages of a watch on, and lies about one event in many, with each kind in turn.
pub struct Liar {
    rng: SmallRng,
    /// None: it is truthful.
    events_per_lie: Option<u64>,
    passed: u64,
    /// The event about which it lies next.
    next_lie: u64,
    /// The kinds of the next lies, the last first.
    kinds: Vec<LieKind>,
    /// Events that come after so many others.
    held: Vec<(PbEvent, u32)>,
    is_paused: bool,
}

impl Liar {
    /// Lies about one event in so many; none: about none.
    pub fn new(seed: u64, events_per_lie: Option<u64>) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        Self {
            events_per_lie,
            passed: 0,
            next_lie: events_per_lie.map_or(0, |events| rng.random_range(0..events)),
            kinds: Vec::new(),
            held: Vec::new(),
            is_paused: false,
            rng,
        }
    }

    /// Begins with these kinds, the last first.
    #[must_use]
    pub fn with_kinds(self, kinds: &[LieKind]) -> Self {
        Self {
            kinds: kinds.to_vec(),
            ..self
        }
    }

    /// Lies no more, until the contrary is said: lies that are due wait.
    pub const fn set_paused(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// Passes a message on to a reader that knows everything up to the revision `known`.
    pub fn pass(&mut self, mut message: PbWatchResponse, known: i64) -> Passed {
        let mut passed = Passed::default();
        let Some(events_per_lie) = self.events_per_lie else {
            passed.message = Some(message);
            return passed;
        };
        if message.created {
            // What was held was of the stream before.
            self.held.clear();
        }
        let is_empty = message.events.is_empty();
        for event in std::mem::take(&mut message.events) {
            self.passed += 1;
            let mut due = self.count_down();
            if let (Some(held), Some(lie)) = (due.first(), &mut passed.lie)
                && lie.kind == LieKind::SwappedWithNext
                && revision_of(held) == revision_of(&event)
            {
                lie.excuse = Some("the changes of one revision are read together");
            }
            match self.due_lie(&event, message.fragment, events_per_lie) {
                Some(kind) => {
                    let is_known = revision_of(&event) <= known;
                    passed.lie = Some(Lie {
                        kind,
                        key: event
                            .kv
                            .as_ref()
                            .map(|pair| pair.key.clone())
                            .unwrap_or_default(),
                        excuse: is_known.then_some("the reader had the change from its list"),
                    });
                    self.tell(kind, event, &mut message, &mut passed);
                }
                None => message.events.push(event),
            }
            message.events.append(&mut due);
        }
        // What is left of a message without its event may look like progress.
        if is_empty || !message.events.is_empty() || self.rng.random() {
            passed.message = Some(message);
        }
        passed
    }

    /// The lie that is due about this event, if any.
    fn due_lie(&mut self, event: &PbEvent, is_part: bool, events_per_lie: u64) -> Option<LieKind> {
        if self.is_paused || self.passed <= self.next_lie {
            return None;
        }
        if self.kinds.is_empty() {
            self.kinds = LieKind::ALL.to_vec();
            self.kinds.shuffle(&mut self.rng);
        }
        let kind = self.kinds.pop_if(|kind| kind.suits(event, is_part))?;
        let next_block = (self.passed / events_per_lie + 1) * events_per_lie;
        self.next_lie = next_block + self.rng.random_range(0..events_per_lie);
        Some(kind)
    }

    /// The held events whose time has come.
    fn count_down(&mut self) -> Vec<PbEvent> {
        self.held.iter_mut().for_each(|(_, left)| *left -= 1);
        let due = self.held.extract_if(.., |(_, left)| *left == 0);
        due.map(|(event, _)| event).collect()
    }

    fn tell(
        &mut self,
        kind: LieKind,
        mut event: PbEvent,
        message: &mut PbWatchResponse,
        passed: &mut Passed,
    ) {
        let delay = MAX_DELAY.mul_f64(self.rng.random());
        let Some(pair) = &mut event.kv else { return };
        match kind {
            LieKind::Lost
            | LieKind::LostLastOfKey
            | LieKind::LostLastOfAll
            | LieKind::LostDeletion => return,
            LieKind::RepeatedAtOnce => message.events.push(event.clone()),
            LieKind::RepeatedLater => {
                let distance = self.rng.random_range(1..=MAX_REPEAT_DISTANCE);
                self.held.push((event.clone(), distance));
            }
            LieKind::SwappedWithNext => {
                self.held.push((event, 1));
                return;
            }
            LieKind::AlteredValue => self.flip_bit(&mut pair.value),
            LieKind::AlteredKey => self.flip_bit(&mut pair.key),
            LieKind::AlteredType => event.r#type = DELETE - event.r#type,
            LieKind::AlteredNumber => {
                let number = match self.rng.random_range(0..3) {
                    0 => &mut pair.version,
                    1 => &mut pair.create_revision,
                    _ => &mut pair.mod_revision,
                };
                *number ^= 1 << self.rng.random_range(0..40);
            }
            LieKind::Delayed => {
                let late = PbWatchResponse {
                    header: message.header,
                    watch_id: message.watch_id,
                    events: vec![event],
                    ..PbWatchResponse::default()
                };
                passed.late = Some((delay, late));
                return;
            }
            LieKind::DelayedWithFollowing => passed.delay = delay,
        }
        message.events.push(event);
    }

    fn flip_bit(&mut self, bytes: &mut [u8]) {
        let at = self.rng.random_range(0..bytes.len());
        bytes[at] ^= 1 << self.rng.random_range(0..8);
    }
}

fn revision_of(event: &PbEvent) -> i64 {
    event.kv.as_ref().map_or(0, |pair| pair.mod_revision)
}
