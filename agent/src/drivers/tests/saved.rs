//! How a list is saved on disk.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use contiv_node::{
    Core, CoreConfig, Input, VerificationConfig,
    decode::Decoder,
    message::{MirrorReport, Now, Output},
};
use contiv_store::{Entry, FeedEvent, Mirror, Saved, Snapshot};
use jiff::Timestamp;

use crate::{
    drivers::Request,
    test_support::{
        Harness, STORE, TEST_TIMEOUT, bad_service, core_config, node, service, snapshot,
    },
};

/// A service with a valid value of this many bytes.
fn padded(name: &str, bytes: usize) -> Entry {
    let mut entry = service(name, 1);
    let mut value = entry.value.to_vec();
    value.resize(bytes.max(value.len()), b' ');
    entry.value = value.into();
    entry
}

#[tokio::test]
async fn list_of_any_size_is_saved_without_bad_values() {
    let large = 128 << 10;
    for (services, bytes) in [(20, 0), (40, large)] {
        let folder = tempfile::tempdir().unwrap();
        let good: Vec<Entry> = (0..services)
            .map(|number| padded(&format!("s{number:02}"), bytes))
            .collect();
        let harness = Harness::start_with_mirror(vec![], folder.path());
        let all = std::iter::once(bad_service("bad"))
            .chain(good.clone())
            .collect();
        harness.deliver(snapshot(7, all)).await;
        let start = Instant::now();
        while harness
            .status()
            .await
            .mirror
            .and_then(|mirror| mirror.revision)
            != Some(7)
        {
            assert!(start.elapsed() < TEST_TIMEOUT, "nothing is saved");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        harness.requests.send(Request::Shutdown).await.unwrap();
        harness.task.await.unwrap().unwrap();
        let saved = Mirror::recall(folder.path(), STORE).unwrap().unwrap();
        assert_eq!(saved.revision, 7);
        assert!(
            saved.entries == good,
            "{services} services of {bytes} bytes"
        );
    }
}

#[tokio::test]
async fn own_node_gone_keeps_what_is_saved_even_unrecalled() {
    let folder = tempfile::tempdir().unwrap();
    // Nothing of it is recalled at the start.
    let saved_node = Entry {
        value: "{".into(),
        ..node("192.0.2.1".parse().unwrap())
    };
    let (mut mirror, _) = Mirror::open(folder.path(), STORE).unwrap();
    mirror
        .replace(7, [Ok(saved_node.clone())], &BTreeSet::new())
        .unwrap();
    drop(mirror);
    let harness = Harness::start_with_mirror(vec![], folder.path());
    harness.deliver(snapshot(8, vec![service("web", 2)])).await;
    let start = Instant::now();
    while harness
        .status()
        .await
        .mirror
        .and_then(|mirror| mirror.revision)
        != Some(8)
    {
        assert!(start.elapsed() < TEST_TIMEOUT, "nothing is saved");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    harness.requests.send(Request::Shutdown).await.unwrap();
    harness.task.await.unwrap().unwrap();
    let saved = Mirror::recall(folder.path(), STORE).unwrap().unwrap();
    assert!(saved.entries.contains(&saved_node), "{:?}", saved.entries);
}

#[tokio::test]
async fn list_with_held_deletions_is_saved_with_the_held_objects() {
    let folder = tempfile::tempdir().unwrap();
    let before: Vec<Entry> = (0..40)
        .map(|number| service(&format!("s{number:02}"), 1))
        .collect();
    // One is newer, most are gone.
    let wiped = vec![Entry {
        mod_revision: 8,
        ..service("s00", 2)
    }];
    let harness = Harness::start_with_mirror(vec![], folder.path());
    for (revision, entries) in [(7, before.clone()), (8, wiped.clone())] {
        harness.deliver(snapshot(revision, entries)).await;
        let start = Instant::now();
        while harness
            .status()
            .await
            .mirror
            .and_then(|mirror| mirror.revision)
            != Some(revision)
        {
            assert!(start.elapsed() < TEST_TIMEOUT, "nothing is saved");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    assert!(harness.status().await.held_deletions.is_some());
    harness.requests.send(Request::Shutdown).await.unwrap();
    harness.task.await.unwrap().unwrap();
    let saved = Mirror::recall(folder.path(), STORE).unwrap().unwrap();
    let expected: Vec<Entry> = wiped
        .into_iter()
        .chain(before.into_iter().skip(1))
        .collect();
    assert!(
        saved.entries == expected,
        "{} entries are saved",
        saved.entries.len()
    );
}

#[test]
fn saved_state_is_awaited_once_and_not_for_ever() {
    let start = Now {
        instant: Instant::now(),
        time: Timestamp::UNIX_EPOCH,
        random: 0.5,
    };
    let config = || CoreConfig {
        has_mirror: true,
        ..core_config(VerificationConfig::default(), None)
    };
    let list = || {
        let list = Snapshot {
            revision: 7,
            entries: vec![bad_service("web")],
            problems: Vec::new(),
        };
        let event = Decoder::new(start.time)
            .decode(FeedEvent::Snapshot(list))
            .unwrap();
        Input::Store(event, start.instant)
    };
    let loaded = || {
        let saved = Saved {
            revision: 6,
            entries: vec![service("web", 1)],
        };
        Input::Mirror(MirrorReport::Loaded(Some(saved)))
    };
    for is_late in [false, true] {
        let (mut core, mut out) = (Core::new(config(), start), Vec::new());
        core.handle(list(), start, &mut |output| out.push(output));
        assert_eq!(
            out.iter()
                .filter(|output| matches!(output, Output::LoadSaved))
                .count(),
            1
        );
        assert!(!core.status().synced);
        let deadline = core.deadline().unwrap();
        let now = Now {
            instant: deadline,
            ..start
        };
        core.handle(
            if is_late { Input::Timer } else { loaded() },
            now,
            &mut |output| out.push(output),
        );
        assert_eq!(
            (core.status().synced, core.services().len()),
            (true, usize::from(!is_late))
        );
        assert!(
            core.deadline().is_none_or(|next| next > deadline),
            "nothing is awaited any more"
        );
        let is_recorded = core
            .history(start.instant)
            .any(|record| record.kind == "mirror-slow");
        assert_eq!(
            is_recorded, is_late,
            "the list could not be compared with what was saved"
        );
        core.handle(loaded(), now, &mut |output| out.push(output));
        assert_eq!(
            (core.status().revision, core.services().len()),
            (7, usize::from(!is_late))
        );
    }
}
