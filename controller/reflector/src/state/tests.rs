use contiv_proto::Kind;
use proptest::prelude::*;

use super::*;

fn path(name: &str) -> String {
    Key::new(Kind::Service, "default", name).unwrap().to_path()
}

fn entry(name: &str, value: &str, mod_revision: i64) -> Entry {
    Entry {
        key: path(name),
        value: value.to_owned().into(),
        create_revision: 0,
        mod_revision,
    }
}

fn service(cluster_ip: &str) -> String {
    format!(r#"{{"cluster_ip":"{cluster_ip}"}}"#)
}

const FOREIGN: &str = r#"{"labels":{"contiv.io/managed-by":"me"}}"#;

fn list(entries: &[(&str, &str)]) -> Snapshot {
    let entries = entries
        .iter()
        .map(|(name, value)| entry(name, value, 7))
        .collect();
    Snapshot {
        revision: 7,
        entries,
        problems: Vec::new(),
    }
}

fn put(name: &str, value: &str, revision: i64) -> Batch {
    Batch {
        revision,
        changes: vec![Change::Put(entry(name, value, revision))],
    }
}

fn delete(name: &str, revision: i64) -> Batch {
    Batch {
        revision,
        changes: vec![Change::Delete { key: path(name) }],
    }
}

fn both(source: &[(&str, &str)], stored: &[(&str, &str)]) -> State {
    let mut state = State::default();
    state.list_source(list(source));
    state.list_stored(list(stored));
    state
}

fn planned(state: &State) -> Vec<(String, Action)> {
    let name = |planned: &PlannedWrite| {
        Key::parse(&planned.path)
            .unwrap()
            .unwrap()
            .name()
            .to_owned()
    };
    state
        .plan(100)
        .iter()
        .map(|planned| (name(planned), planned.action))
        .collect()
}

fn one(name: &str, action: Action) -> Vec<(String, Action)> {
    vec![(name.to_owned(), action)]
}

#[test]
fn first_pass_adds_missing_updates_different_sweeps_the_rest() {
    let (same, new) = (service("10.96.0.1"), service("10.96.0.2"));
    let state = both(
        &[("a", &new), ("b", &same), ("c", &new)],
        &[("b", &same), ("c", &same), ("d", &same)],
    );
    let expected = [
        ("a", Action::Add),
        ("c", Action::Update),
        ("d", Action::Delete),
    ];
    assert_eq!(
        planned(&state),
        expected.map(|(name, action)| (name.to_owned(), action))
    );
}

#[test]
fn nothing_is_swept_or_added_before_both_sides_are_listed() {
    let mut state = State::default();
    state.list_stored(list(&[("a", "{}")]));
    state.change_source(put("b", "{}", 8));
    assert_eq!(planned(&state), []);
    let mut state = State::default();
    state.list_source(list(&[("a", "{}")]));
    assert_eq!(planned(&state), []);
}

#[test]
fn value_already_written_by_others_is_not_written_again() {
    let by_hand = r#"{ "clusterIp" : "10.96.0.1", "annotations": {}, "unknown": 7 }"#;
    assert_eq!(
        planned(&both(&[("a", &service("10.96.0.1"))], &[("a", by_hand)])),
        []
    );
}

#[test]
fn names_taken_by_others_are_reported_once() {
    let mut state = both(
        &[("a", "{}"), ("b", "{}"), ("c", "{}")],
        &[("a", FOREIGN), ("c", "{}"), ("d", FOREIGN)],
    );
    let names = |state: &mut State| -> Vec<String> {
        let taken = state.newly_taken();
        taken
            .iter()
            .map(|path| Key::parse(path).unwrap().unwrap().name().to_owned())
            .collect()
    };
    assert_eq!(names(&mut state), ["a"]);
    state.list_stored(list(&[("a", FOREIGN), ("b", FOREIGN)]));
    assert_eq!(names(&mut state), ["b"]);
    // It is free for a while.
    state.change_stored(delete("a", 8));
    assert_eq!(names(&mut state), [""; 0]);
    state.change_stored(put("a", FOREIGN, 9));
    assert_eq!(names(&mut state), ["a"]);
    state.change_source(delete("a", 10));
    state.change_source(put("a", "{}", 11));
    assert_eq!(names(&mut state), [""; 0], "nobody asked meanwhile");
}

#[test]
fn foreign_values_are_neither_written_nor_swept() {
    let mut state = both(&[("a", "{}")], &[("a", FOREIGN), ("b", FOREIGN)]);
    assert_eq!(planned(&state), []);
    // When they let it go, it is the reflector's.
    state.change_stored(delete("a", 8));
    assert_eq!(planned(&state), one("a", Action::Add));
    // Objects that are labelled as another writer's in Kubernetes are not reflected.
    assert_eq!(planned(&both(&[("a", FOREIGN)], &[])), []);
}

#[test]
fn value_unreadable_in_kubernetes_stays_as_stored() {
    let mut state = both(&[("a", "")], &[("a", "{}")]);
    assert_eq!(planned(&state), []);
    state.change_source(put("a", &service("10.96.0.1"), 8));
    assert_eq!(planned(&state), one("a", Action::Update));
    state.change_source(put("a", "", 9));
    assert_eq!(planned(&state), []);
    state.change_source(delete("a", 10));
    assert_eq!(planned(&state), one("a", Action::Delete));
}

#[test]
fn value_unreadable_in_the_store_is_replaced_or_swept() {
    let state = both(&[("a", "{}")], &[("a", "{oops"), ("b", "{oops")]);
    let expected = [("a", Action::Update), ("b", Action::Delete)];
    assert_eq!(
        planned(&state),
        expected.map(|(name, action)| (name.to_owned(), action))
    );
}

#[test]
fn echo_of_older_write_is_no_news() {
    let (first, second) = (service("10.96.0.1"), service("10.96.0.2"));
    let mut state = both(&[("a", &first)], &[]);
    state.written(&state.plan(100), 8);
    state.change_source(put("a", &second, 20));
    state.written(&state.plan(100), 9);
    state.change_stored(put("a", &first, 8));
    assert_eq!(planned(&state), []);
    state.change_stored(put("a", &second, 9));
    assert_eq!(planned(&state), []);
    // And the echo of a deletion before it was made again.
    state.change_source(delete("a", 21));
    state.written(&state.plan(100), 10);
    state.change_source(put("a", &first, 22));
    state.written(&state.plan(100), 11);
    state.change_stored(delete("a", 10));
    assert_eq!(planned(&state), []);
}

#[test]
fn foreign_change_of_a_key_is_undone() {
    let mut state = both(&[("a", "{}")], &[("a", "{}")]);
    state.change_stored(put("a", &service("10.96.0.9"), 8));
    assert_eq!(planned(&state), one("a", Action::Update));
    state.change_stored(delete("a", 9));
    assert_eq!(planned(&state), one("a", Action::Add));
}

#[test]
fn parked_key_blocks_no_other_and_returns_with_its_next_event() {
    let mut state = both(&[("a", "{}"), ("b", "{}")], &[]);
    state.park(&path("a"));
    assert_eq!(planned(&state), one("b", Action::Add));
    state.change_stored(put("a", &service("10.96.0.9"), 8));
    assert_eq!(planned(&state)[0], ("a".to_owned(), Action::Update));
    state.park(&path("a"));
    state.retry();
    assert_eq!(planned(&state).len(), 2);
}

#[test]
fn batch_has_end_in_number_and_in_size() {
    let names: Vec<String> = (0..250).map(|i| format!("s{i:03}")).collect();
    let all: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "{}")).collect();
    assert_eq!(both(&all, &[]).plan(100).len(), 100);
    let large = format!(r#"{{"cluster_ip":"{}"}}"#, "9".repeat(200 << 10));
    let state = both(&[("a", &large), ("b", &large), ("c", &large)], &[]);
    assert_eq!(state.plan(100).len(), 2);
    let huge = format!(r#"{{"cluster_ip":"{}"}}"#, "9".repeat(900 << 10));
    assert_eq!(
        both(&[("a", &huge), ("b", &huge)], &[]).plan(100).len(),
        1,
        "one always goes"
    );
}

/// Something that happens at the source or in the store.
#[derive(Debug, Clone)]
enum Step {
    Source(u8, Option<u8>),
    Stored(u8, Option<u8>),
    ListSource(Vec<(u8, u8)>),
    ListStored(Vec<(u8, u8)>),
    Write,
}

/// 0 cannot be read, 1 is of another owner, the others differ.
fn value(number: u8) -> String {
    match number {
        0 => String::new(),
        1 => FOREIGN.to_owned(),
        other => service(&format!("10.96.0.{other}")),
    }
}

fn step() -> impl Strategy<Value = Step> {
    let (key, number) = (0..6_u8, 0..5_u8);
    let all = proptest::collection::btree_map(key.clone(), number.clone(), 0..6);
    let all = all.prop_map(|all| all.into_iter().collect::<Vec<_>>());
    let change = (key, proptest::option::of(number));
    prop_oneof![
        4 => change.clone().prop_map(|(key, number)| Step::Source(key, number)),
        2 => change.prop_map(|(key, number)| Step::Stored(key, number)),
        1 => all.clone().prop_map(Step::ListSource),
        1 => all.prop_map(Step::ListStored),
        3 => Just(Step::Write),
    ]
}

/// A store, and what Kubernetes says.
#[derive(Default)]
struct ModelStore {
    source: BTreeMap<u8, u8>,
    stored: BTreeMap<u8, u8>,
    revision: i64,
}

impl ModelStore {
    fn snapshot(&self, of: &BTreeMap<u8, u8>) -> Snapshot {
        let entries = of
            .iter()
            .map(|(key, number)| entry(&key.to_string(), &value(*number), self.revision));
        Snapshot {
            revision: self.revision,
            entries: entries.collect(),
            problems: Vec::new(),
        }
    }

    fn batch(&self, key: u8, number: Option<u8>) -> Batch {
        match number {
            Some(number) => put(&key.to_string(), &value(number), self.revision),
            None => delete(&key.to_string(), self.revision),
        }
    }

    fn apply(&mut self, state: &mut State, step: Step) {
        self.revision += 1;
        match step {
            Step::Source(key, number) => {
                set(&mut self.source, key, number);
                state.change_source(self.batch(key, number));
            }
            Step::Stored(key, number) => {
                set(&mut self.stored, key, number);
                state.change_stored(self.batch(key, number));
            }
            Step::ListSource(all) => {
                self.source = all.into_iter().collect();
                state.list_source(self.snapshot(&self.source));
            }
            Step::ListStored(all) => {
                self.stored = all.into_iter().collect();
                state.list_stored(self.snapshot(&self.stored));
            }
            Step::Write => self.write(state),
        }
    }

    /// Applies the planned writes, as a store does, and checks that they are allowed.
    fn write(&mut self, state: &mut State) {
        let plan = state.plan(2);
        for PlannedWrite { path, action, .. } in &plan {
            let key: u8 = Key::parse(path).unwrap().unwrap().name().parse().unwrap();
            let (source, stored) = (
                self.source.get(&key).copied(),
                self.stored.get(&key).copied(),
            );
            assert_ne!(stored, Some(1), "objects of others are left alone");
            assert_ne!(source, stored, "nothing is written that is there already");
            assert!(
                source.is_none_or(|number| number > 1),
                "{source:?} is nothing to write"
            );
            assert_eq!(*action == Action::Delete, source.is_none());
            assert_eq!(*action == Action::Add, stored.is_none());
            set(&mut self.stored, key, source);
        }
        state.written(&plan, self.revision);
    }

    /// The expected final content of the store.
    fn expected(&self) -> BTreeMap<u8, u8> {
        let keys: BTreeSet<u8> = self
            .source
            .keys()
            .chain(self.stored.keys())
            .copied()
            .collect();
        let of = |key: &u8| match (self.source.get(key), self.stored.get(key)) {
            (_, Some(1)) => Some(1),
            (Some(0 | 1), stored) => stored.copied(),
            (source, _) => source.copied(),
        };
        keys.into_iter()
            .filter_map(|key| Some((key, of(&key)?)))
            .collect()
    }
}

fn set(map: &mut BTreeMap<u8, u8>, key: u8, number: Option<u8>) {
    match number {
        Some(number) => drop(map.insert(key, number)),
        None => drop(map.remove(&key)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn store_converges_to_kubernetes_and_then_nothing_is_written(
        steps in proptest::collection::vec(step(), 0..40)
    ) {
        let (mut world, mut state) = (ModelStore::default(), State::default());
        world.apply(&mut state, Step::ListSource(Vec::new()));
        world.apply(&mut state, Step::ListStored(Vec::new()));
        for step in steps {
            world.apply(&mut state, step);
        }
        let expected = world.expected();
        for _ in 0..6 {
            world.apply(&mut state, Step::Write);
        }
        prop_assert_eq!(&world.stored, &expected);
        prop_assert_eq!(state.plan(100), vec![]);
    }
}
