//! The pure state against a model, for any order of calls.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::state::State;
use super::*;

#[derive(Debug, Clone)]
enum Call {
    Add(u8),
    AddAfter(u8, u64),
    AddDebounced(u8),
    Take,
    Finish,
    Wait(u64),
}

fn call() -> impl Strategy<Value = Call> {
    let key = 0_u8..4;
    prop_oneof![
        key.clone().prop_map(Call::Add),
        (key.clone(), 0_u64..50).prop_map(|(key, delay)| Call::AddAfter(key, delay)),
        key.prop_map(Call::AddDebounced),
        Just(Call::Take),
        Just(Call::Finish),
        (1_u64..30).prop_map(Call::Wait),
    ]
}

proptest! {
    /// An added key is handed out afterwards, once for any number of additions in between, and never to two workers.
    #[test]
    fn added_key_is_processed_after_its_addition(calls in proptest::collection::vec(call(), 1..80)) {
        let mut state = State::default();
        let mut now = Instant::now();
        let mut owed = BTreeSet::new();
        let mut working = Vec::new();
        for call in calls {
            match call {
                Call::Add(key) => {
                    state.add(key, now);
                    owed.insert(key);
                }
                Call::AddAfter(key, delay) => {
                    state.add_after(key, ms(delay), now);
                    owed.insert(key);
                }
                Call::AddDebounced(key) => {
                    state.add_debounced(key, Debounce { quiet: ms(10), max_delay: ms(25) }, now);
                    owed.insert(key);
                }
                Call::Take => {
                    state.release_due(now);
                    if let Some((key, _)) = state.take(now) {
                        prop_assert!(!working.contains(&key), "two workers on {key}");
                        prop_assert!(owed.remove(&key), "{key} was not asked for");
                        working.push(key);
                    }
                }
                Call::Finish => {
                    if let Some(key) = working.pop() {
                        state.finish(&key, now);
                    }
                }
                Call::Wait(millis) => now += ms(millis),
            }
        }
        for key in working.drain(..) {
            state.finish(&key, now);
        }
        now += ms(60);
        state.release_due(now);
        prop_assert_eq!(state.delayed(), 0);
        while let Some((key, _)) = state.take(now) {
            prop_assert!(owed.remove(&key), "{key} was handed out twice");
            state.finish(&key, now);
        }
        prop_assert!(owed.is_empty(), "{owed:?} never came");
        prop_assert!(state.is_idle());
    }
}
