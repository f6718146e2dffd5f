//! `testdata` has the answers of a kube-apiserver (1.20.2) to the same requests in JSON and in protobuf.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::kube::object::receive;

const LISTS: [(Kind, &[u8], &str); 3] = [
    (
        Kind::Service,
        include_bytes!("testdata/services.protobuf"),
        include_str!("testdata/services.json"),
    ),
    (
        Kind::EndpointSlice,
        include_bytes!("testdata/endpointslices.protobuf"),
        include_str!("testdata/endpointslices.json"),
    ),
    (
        Kind::Node,
        include_bytes!("testdata/nodes.protobuf"),
        include_str!("testdata/nodes.json"),
    ),
];

const WATCHES: [(Kind, &[u8], &str); 3] = [
    (
        Kind::Service,
        include_bytes!("testdata/services-watch.protobuf"),
        include_str!("testdata/services-watch.json"),
    ),
    (
        Kind::EndpointSlice,
        include_bytes!("testdata/endpointslices-watch.protobuf"),
        include_str!("testdata/endpointslices-watch.json"),
    ),
    (
        Kind::Node,
        include_bytes!("testdata/nodes-watch.protobuf"),
        include_str!("testdata/nodes-watch.json"),
    ),
];

fn split<'a>(
    kind: Kind,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(Vec<String>, ListMetadata), String> {
    let (mut splitter, mut items) = (ListSplitter::default(), Vec::new());
    for chunk in chunks {
        splitter.feed(chunk, |item| {
            items.push(item_to_json(kind, item)?);
            Ok(())
        })?;
    }
    let (list_kind, metadata) = splitter.finish()?;
    check_kind(kind, list_kind.strip_suffix("List").unwrap_or_default())?;
    Ok((items, metadata))
}

/// What is kept of an object.
fn kept(kind: Kind, json: &str) -> String {
    format!("{:?}", receive(kind, json).unwrap())
}

#[test]
fn lists_of_a_real_server_are_the_same_in_both_forms() {
    for (kind, list, json) in LISTS {
        let (items, metadata) = split(kind, [list]).unwrap();
        let json: Value = serde_json::from_str(json).unwrap();
        assert_eq!(
            metadata.resource_version,
            json["metadata"]["resourceVersion"]
        );
        let expected = json["items"].as_array().unwrap();
        assert!(!expected.is_empty());
        // The cache of the server has no order.
        let kept_of_all = |items: Vec<String>| -> BTreeSet<String> {
            items.iter().map(|item| kept(kind, item)).collect()
        };
        let expected = expected.iter().map(ToString::to_string).collect();
        assert_eq!(kept_of_all(items), kept_of_all(expected));
    }
}

#[test]
fn watches_of_a_real_server_are_the_same_in_both_forms() {
    for (kind, mut frames, lines) in WATCHES {
        // Those that the server has at the beginning come in any order.
        let (mut events, mut expected) = (Vec::new(), Vec::new());
        while let Some((size, rest)) = frames.split_first_chunk() {
            let (frame, rest) = rest.split_at(u32::from_be_bytes(*size) as usize);
            events.push(event_to_json(kind, bytes::Bytes::copy_from_slice(frame)).unwrap());
            frames = rest;
        }
        for line in lines.lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            expected.push((
                event["type"].as_str().unwrap().to_owned(),
                event["object"].to_string(),
            ));
        }
        assert_eq!(events.len(), expected.len());
        let names = |events: &[(String, String)]| {
            let mut names: Vec<String> = events.iter().map(|(event, _)| event.clone()).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(names(&events), names(&expected));
        let kept_of_all = |events: Vec<(String, String)>| {
            let objects = events.into_iter().filter(|(event, json)| {
                // Those of other names or versions in the two answers.
                event == "ADDED" && !json.contains("later")
            });
            let mut kept: Vec<String> = objects.map(|(_, json)| kept(kind, &json)).collect();
            kept.sort_unstable();
            kept
        };
        assert_eq!(kept_of_all(events), kept_of_all(expected));
    }
}

#[test]
fn event_of_another_type_is_refused() {
    let (kind, frames, _) = WATCHES[0];
    let (size, rest) = frames.split_first_chunk().unwrap();
    let event = &rest[..u32::from_be_bytes(*size) as usize];
    assert!(event_to_json(kind, bytes::Bytes::copy_from_slice(event)).is_ok());
    let refused = event_to_json(Kind::Node, bytes::Bytes::copy_from_slice(event)).unwrap_err();
    assert!(refused.contains("Service"), "{refused}");
}

#[test]
fn bookmark_has_a_version() {
    let mut frames: &[u8] = WATCHES[0].1;
    let mut bookmarks = 0;
    while let Some((size, rest)) = frames.split_first_chunk() {
        let (frame, rest) = rest.split_at(u32::from_be_bytes(*size) as usize);
        let (event, json) =
            event_to_json(Kind::Service, bytes::Bytes::copy_from_slice(frame)).unwrap();
        if event == "BOOKMARK" {
            let version = crate::kube::object::version_of(&json).unwrap();
            assert!(version.parse::<i64>().unwrap() > 0, "{version}");
            bookmarks += 1;
        }
        frames = rest;
    }
    assert!(bookmarks > 0);
}

#[test]
fn errors_of_a_real_server_are_read() {
    let status = |json: &str| serde_json::from_str::<kube::core::Status>(json).unwrap();
    let bad = status(&status_to_json(include_bytes!("testdata/error.protobuf")).unwrap());
    assert_eq!((bad.code, bad.reason.as_str()), (400, "BadRequest"));
    assert!(
        bad.message.contains("continue key is not valid"),
        "{}",
        bad.message
    );
    let too_new = status(&status_to_json(include_bytes!("testdata/too-new.protobuf")).unwrap());
    assert_eq!(
        too_new.details.unwrap().causes[0].reason,
        "ResourceVersionTooLarge"
    );
    let frame = &include_bytes!("testdata/expired-watch.protobuf")[4..];
    let (event, json) = event_to_json(Kind::Service, bytes::Bytes::from_static(frame)).unwrap();
    assert_eq!((event.as_str(), status(&json).code), ("ERROR", 410));
    assert_eq!(status_to_json(br#"{"kind":"Status"}"#), None);
}

#[test]
fn list_that_is_cut_off_or_no_list_is_an_error() {
    let list = LISTS[0].1;
    // After the list come two empty fields of two bytes each.
    for end in 0..list.len() - 4 {
        assert!(
            split(Kind::Service, [&list[..end]]).is_err(),
            "{end} of {} bytes",
            list.len()
        );
    }
    for text in [
        &b"{\"items\":[]}"[..],
        b"k8s\0\x08\x01",
        b"k8s\0\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ] {
        assert!(split(Kind::Service, [text]).is_err(), "{text:?}");
    }
    assert!(split(Kind::Pod, [list]).is_err(), "no type that is read");
}

#[test]
fn item_that_is_too_large_is_refused_before_it_arrives() {
    let mut splitter = ListSplitter::default();
    // The list has 2^30 bytes, and so has its first item, but for some.
    let head = b"k8s\0\x12\x80\x80\x80\x80\x04\x12\xf0\xff\xff\xff\x03";
    let error = splitter.feed(head, |_| Ok(())).unwrap_err();
    assert!(error.contains("one object is larger"), "{error}");
}

proptest! {
    #[test]
    fn chunks_make_no_difference(cuts in prop::collection::vec(0_usize..4000, 0..12)) {
        for (kind, list, _) in LISTS {
            let mut ends: Vec<usize> = cuts.iter().map(|cut| *cut % list.len()).collect();
            ends.extend([0, list.len()]);
            ends.sort_unstable();
            let chunks = ends.windows(2).map(|cut| &list[cut[0]..cut[1]]);
            prop_assert_eq!(split(kind, chunks).unwrap(), split(kind, [list]).unwrap());
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), at in 0_usize..900) {
        for (kind, list, _) in LISTS {
            let mut list = list.to_vec();
            let at = at.min(list.len());
            let end = (at + bytes.len()).min(list.len());
            list.splice(at..end, bytes.iter().copied());
            // An error, or other items.
            let _ = split(kind, [&list[..]]);
            let _ = event_to_json(kind, bytes::Bytes::copy_from_slice(&bytes));
        }
    }
}
