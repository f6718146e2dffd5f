//! Properties of manifests and store URLs, for any input. Fuzzers search for input that breaks one (`fuzz/`).

use contiv_proto::{Key, Object};

use crate::{
    StoreUrl,
    manifest::{ManifestObject, parse_file, to_value, to_yaml},
    url::without_password,
};

const FILE: &str = "input.yaml";

/// `input` is a file of manifests.
///
/// # Panics
/// When an object does not round-trip, or a problem names nothing.
pub fn manifest(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    let parsed = parse_file(FILE, text);
    for object in &parsed.objects {
        reads_back(object);
    }
    let mut keys: Vec<&Key> = parsed.objects.iter().map(|object| &object.key).collect();
    keys.sort();
    assert!(
        keys.windows(2).all(|pair| pair[0] != pair[1]),
        "each key once"
    );
    for problem in &parsed.problems {
        assert!(
            problem.source.starts_with(FILE) && !problem.reason.is_empty(),
            "{problem:?}"
        );
        assert!(
            problem.object.is_some() || parsed.is_incomplete,
            "{problem:?} is of some object"
        );
    }
    assert!(
        parsed.broken.is_empty() || !parsed.problems.is_empty(),
        "broken objects are reported"
    );
}

fn reads_back(object: &ManifestObject) {
    let stored = object
        .object
        .encode()
        .unwrap_or_else(|error| panic!("{object:?} cannot be stored: {error}"));
    assert_eq!(
        Object::decode(&object.key, &stored).as_ref(),
        Ok(&object.object),
        "as it is stored"
    );
    assert_eq!(
        Key::parse(&object.key.to_path()).as_ref(),
        Ok(&Some(object.key.clone()))
    );
    let yaml =
        to_yaml(&[to_value(&object.object)]).unwrap_or_else(|error| panic!("{object:?}: {error}"));
    let again = parse_file(FILE, &yaml);
    assert!(again.problems.is_empty(), "{yaml}\n{:?}", again.problems);
    assert_eq!(
        again
            .objects
            .iter()
            .map(|again| &again.object)
            .collect::<Vec<_>>(),
        [&object.object],
        "{yaml}"
    );
}

/// `input` is a store URL.
///
/// # Panics
/// When its printed form is another URL, or an error does not name it, or reveals a password.
pub fn url(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    match text.parse::<StoreUrl>() {
        // A URL can have several forms, as in `kube:?`.
        Ok(url) => assert_eq!(url.to_string().parse::<StoreUrl>().as_ref(), Ok(&url)),
        Err(error) => assert!(error.url == without_password(text) && !error.problem.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    include!("../../fuzz/replay.rs");

    #[test]
    fn corpus_of_manifests_breaks_no_property() {
        replay("manifests", super::manifest);
    }

    #[test]
    fn corpus_of_store_urls_breaks_no_property() {
        replay("store-urls", super::url);
    }
}
