//! Errors that are reported before anything runs.

use super::*;
use crate::{Index, Mapper, Object, queue::TokenBucket};

fn plain(managed: &str) -> ControllerBuilder<String> {
    Controller::for_type(&texts(managed))
        .with_reconciler(|_: Context<String>, _: Key| async { Ok(Outcome::Done) })
}

fn watching(managed: &str, watched: &[&str]) -> Controller<String> {
    let mapper = || Mapper::of(|_: &Object<String>| vec![]);
    let builder = watched.iter().fold(plain(managed), |builder, watched| {
        builder.with_watch(&texts(watched), mapper())
    });
    builder.build().unwrap()
}

fn index() -> Index<String> {
    Index::single("text", |object: &Object<String>| Some(object.value.clone()))
}

#[test]
fn misuse_is_an_error_with_a_hint() {
    let mapper = || Mapper::of(|_: &Object<String>| vec![]);
    let zero_bucket = TokenBucket {
        per_second: 0.0,
        burst: 1,
    };
    for (builder, message) in [
        (
            Controller::for_type(&texts("t")),
            "the controller of t has no reconciler; give it one with with_reconciler",
        ),
        (
            plain("t")
                .with_watch(&texts("w"), mapper())
                .with_watch(&texts("w"), mapper()),
            "the controller of t watches w twice; watch it once",
        ),
        (
            plain("t").with_watch(&texts("t"), mapper()),
            "the managed type is watched already",
        ),
        (
            plain("t").with_watch(
                &texts("w").with_index(index()).with_index(index()),
                mapper(),
            ),
            "w has two indexes called \"text\"; rename one of them",
        ),
        (plain("t").with_concurrency(0), "use 1 or more"),
        (plain("t").with_backoff(ms(2), ms(1)), "swap them"),
        (plain("t").with_retry_bucket(zero_bucket), "a rate above 0"),
        (
            plain("t").with_resync(Some(Duration::ZERO)),
            "None for no resync",
        ),
    ] {
        let error = builder.build().unwrap_err().to_string();
        assert!(error.contains(message), "{message}: {error}");
    }
}

#[test]
fn controller_prints_as_in_consul() {
    let controller = plain("demo.v2.Artist")
        .with_watch(
            &texts("demo.v2.Album"),
            Mapper::of(|_: &Object<String>| vec![]),
        )
        .with_backoff(Duration::from_secs(5), Duration::from_secs(3600))
        .with_placement(Placement::EachNode)
        .build()
        .unwrap();
    assert_eq!(
        controller.to_string(),
        "<Controller managed_type=demo.v2.Artist, watched_types=[demo.v2.Album], \
         backoff=<base=5s, max=1h0m0s>, placement=each-node>"
    );
    assert_eq!(
        plain("demo.v2.Artist").build().unwrap().to_string(),
        "<Controller managed_type=demo.v2.Artist, watched_types=[], \
         backoff=<base=5ms, max=16m40s>, placement=singleton>"
    );
}

fn manager(controllers: Vec<Controller<String>>) -> Manager {
    let mut manager = Manager::new(MemoryStore::new().shared(), Lease::always_leader());
    for controller in controllers {
        manager.register(controller).unwrap();
    }
    manager
}

#[test]
fn duplicate_controller_names_are_refused_unless_renamed() {
    let mut manager = manager(vec![plain("t").build().unwrap()]);
    let error = manager.register(plain("t").build().unwrap()).unwrap_err();
    assert!(
        error.to_string().contains("another name with named"),
        "{error}"
    );
    manager
        .register(plain("t").named("second").build().unwrap())
        .unwrap();
}

#[test]
fn two_controllers_that_watch_each_other_are_found() {
    let manager = manager(vec![
        watching("a", &["b", "c"]),
        watching("b", &["c", "a"]),
        watching("d", &["a"]),
    ]);
    let cycle = ManagerError::Cycle {
        one: "a".to_owned(),
        other: "b".to_owned(),
    };
    let error = manager.validate_dependencies().unwrap_err();
    assert_eq!(error, cycle);
    assert_eq!(
        error.to_string(),
        "the controllers of a and b each watch what the other manages; let one of them manage what both need"
    );
}

#[test]
fn types_that_lead_one_way_are_no_cycle() {
    assert_eq!(manager(vec![]).validate_dependencies(), Ok(()));
    let one_way = vec![
        watching("a", &["b", "c"]),
        watching("b", &["c"]),
        watching("c", &["d"]),
    ];
    assert_eq!(manager(one_way).validate_dependencies(), Ok(()));
}
