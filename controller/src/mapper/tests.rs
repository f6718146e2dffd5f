use super::*;
use crate::{
    cache::Index,
    reflector::Reflector,
    test_support::{put, texts},
};
use contiv_store_testing::MemoryStore;

fn object(key: &str, value: &str) -> Object<String> {
    Object {
        key: key.into(),
        value: value.to_owned(),
        create_revision: 1,
        mod_revision: 1,
    }
}

/// Caches of the types `a` and `b`; the objects of `b` are indexed by their text.
async fn caches(entries: &[(&str, &str)]) -> Caches {
    let store = MemoryStore::new();
    for (key, value) in entries {
        put(&store, key, value).await;
    }
    let mut caches = Caches::default();
    let index = || Index::single("text", |object: &Object<String>| Some(object.value.clone()));
    for name in ["a", "b"] {
        let (mut reflector, cache) = Reflector::start(store.shared(), &texts(name), vec![index()]);
        reflector.next().await;
        caches.insert(&texts(name), cache);
    }
    caches
}

fn map(mapper: &Mapper<String>, caches: &Caches, object: &Object<String>) -> Vec<String> {
    mapper
        .map(caches, object)
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// Texts that name their owner.
#[expect(clippy::ptr_arg, reason = "the objects are texts that own their bytes")]
fn owner(text: &String) -> Option<Key> {
    text.strip_prefix("owner=").map(Into::into)
}

#[test]
fn map_owner_returns_the_owner_if_it_has_the_type() {
    let (none, any) = (Caches::default(), Mapper::map_owner(owner));
    let filtered = Mapper::map_owner_filtered(&texts("a"), owner);
    for (text, of_any, of_type_a) in [
        ("owner=/a/1", vec!["/a/1"], vec!["/a/1"]),
        ("owner=/b/1", vec!["/b/1"], vec![]),
        ("owner=/ab/1", vec!["/ab/1"], vec![]),
        ("nobody's", vec![], vec![]),
    ] {
        assert_eq!(map(&any, &none, &object("/c/1", text)), of_any);
        assert_eq!(map(&filtered, &none, &object("/c/1", text)), of_type_a);
    }
}

#[test]
fn replace_type_keeps_name() {
    let mapper = Mapper::replace_type(&texts("a"), &texts("b"));
    assert_eq!(
        map(&mapper, &Caches::default(), &object("/a/x/y", "")),
        ["/b/x/y"]
    );
}

#[test]
fn multi_mapper_merges_keys_and_map_all_removes_duplicates() {
    let same = Mapper::replace_type(&texts("a"), &texts("b"));
    let mapper = Mapper::multi(vec![same.clone(), Mapper::map_owner(owner), same]);
    let before = Arc::new(object("/a/1", "owner=/b/9"));
    let after = Arc::new(object("/a/1", "owner=/b/2"));
    let keys = mapper
        .map_all(&Caches::default(), [&before, &after])
        .unwrap();
    assert_eq!(
        keys.iter().map(AsRef::as_ref).collect::<Vec<&str>>(),
        ["/b/1", "/b/2", "/b/9"]
    );
}

#[tokio::test]
async fn cache_mappers_return_keys_of_cached_objects() {
    let caches = caches(&[
        ("/a/1", "x"),
        ("/b/1", "x"),
        ("/b/2", "x"),
        ("/b/3", "/x/y"),
        ("/b/4", "/x"),
    ])
    .await;
    let get = Mapper::cache_get(&texts("a"), |object: &Object<String>| {
        Some(object.value.as_str().into())
    });
    assert_eq!(map(&get, &caches, &object("/c/1", "/a/1")), ["/a/1"]);
    assert_eq!(
        map(&get, &caches, &object("/c/1", "/a/2")),
        Vec::<String>::new()
    );

    let by_text = |object: &Object<String>| vec![object.value.clone()];
    let list = Mapper::cache_list(&texts("b"), "text", by_text);
    assert_eq!(map(&list, &caches, &object("/c/1", "x")), ["/b/1", "/b/2"]);

    let parents = Mapper::cache_parents(&texts("b"), "text", |object: &Object<String>| {
        Some(object.value.clone())
    });
    assert_eq!(
        map(&parents, &caches, &object("/c/1", "/x/y/z")),
        ["/b/3", "/b/4"]
    );
}

#[tokio::test]
async fn transforms_can_be_chained() {
    let caches = caches(&[
        ("/a/1", "x"),
        ("/b/1", "x"),
        ("/b/2", "owner=/d/2"),
        ("/b/3", "x"),
    ])
    .await;
    let key_of_a = |object: &Object<String>| vec![object.value.clone()];
    let to_a = || Transform::list(&texts("a"), "text", key_of_a);
    let a_to_b = || {
        Transform::list(&texts("b"), "text", |a: &Object<String>| {
            vec![a.value.clone()]
        })
    };
    let chained = to_a().then(a_to_b()).then_keys();
    assert_eq!(
        map(&chained, &caches, &object("/c/1", "x")),
        ["/b/1", "/b/3"]
    );
    let mapped = to_a()
        .then(a_to_b())
        .then_map(Mapper::replace_type(&texts("b"), &texts("d")));
    assert_eq!(
        map(&mapped, &caches, &object("/c/1", "x")),
        ["/d/1", "/d/3"]
    );
}

/// consul's `WrapAndReplaceType`.
#[test]
fn wrapping_mapper_changes_the_type_of_keys() {
    let renamed = |inner: Mapper<String>| {
        let (b, d) = (texts("b"), texts("d"));
        Mapper::new(move |caches, object| {
            let keys = inner.map(caches, object)?;
            Ok::<_, BoxError>(
                keys.iter()
                    .filter_map(|key| b.name_of(key).map(|name| d.key(name)))
                    .collect(),
            )
        })
    };
    let two = Mapper::of(|_: &Object<String>| vec!["/b/1".into(), "/b/2".into()]);
    assert_eq!(
        map(&renamed(two), &Caches::default(), &object("/a/1", "")),
        ["/d/1", "/d/2"]
    );
    let error = renamed(failing())
        .map(&Caches::default(), &object("/a/1", ""))
        .unwrap_err();
    assert_eq!(error.to_string(), "test error");
}

fn failing() -> Mapper<String> {
    Mapper::new(|_, _: &Object<String>| Err("test error"))
}

#[tokio::test]
async fn mapper_fails_with_the_error_of_its_inner_mapper() {
    let caches = caches(&[("/a/1", "x")]).await;
    let to_a = Transform::list(&texts("a"), "text", |object: &Object<String>| {
        vec![object.value.clone()]
    });
    let same = Mapper::replace_type(&texts("c"), &texts("a"));
    for mapper in [
        Mapper::multi(vec![same, failing()]),
        to_a.then_map(failing()),
    ] {
        let error = mapper.map(&caches, &object("/c/1", "x")).unwrap_err();
        assert_eq!(error.to_string(), "test error");
    }
}

#[tokio::test]
async fn unwatched_type_and_missing_index_are_errors_by_name() {
    let caches = caches(&[("/a/1", "x")]).await;
    let value = |object: &Object<String>| vec![object.value.clone()];
    let path = |object: &Object<String>| Some(object.value.clone());
    let list = |of: &str, index: &str| Transform::list(&texts(of), index, value);
    let unwatched = "the controller does not watch c; add a watch of it with with_watch";
    let no_index = "a has no index \"other\"; give it one with with_index";
    for (mapper, expected) in [
        (
            Mapper::cache_get(&texts("c"), |_: &Object<String>| Some("/c/1".into())),
            unwatched,
        ),
        (Mapper::cache_list(&texts("c"), "text", value), unwatched),
        (Mapper::cache_list(&texts("a"), "other", value), no_index),
        (Mapper::cache_parents(&texts("c"), "text", path), unwatched),
        (Mapper::cache_parents(&texts("a"), "other", path), no_index),
        (list("c", "text").then_keys(), unwatched),
        (
            list("a", "text").then(list("a", "other")).then_keys(),
            no_index,
        ),
    ] {
        assert_eq!(
            mapper
                .map(&caches, &object("/b/1", "x"))
                .unwrap_err()
                .to_string(),
            expected
        );
    }
}
