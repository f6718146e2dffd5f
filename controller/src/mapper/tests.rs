use super::*;
use crate::test_support::texts;

fn object(key: &str, value: &str) -> Object<String> {
    Object {
        key: key.into(),
        value: value.to_owned(),
        create_revision: 1,
        mod_revision: 1,
    }
}

fn map(mapper: &Mapper<String>, caches: &Caches, object: &Object<String>) -> Vec<String> {
    (mapper.map)(caches, object)
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
fn map_all_returns_keys_of_all_states_once() {
    let mapper = Mapper::new(|_: &Caches, object: &Object<String>| {
        let name = Mapper::replace_type(&texts("a"), &texts("b"));
        let keys = name.map_all(&Caches::default(), [&Arc::new(object.clone())])?;
        Ok::<_, BoxError>(keys.into_iter().chain(owner(&object.value)).collect())
    });
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

#[test]
fn map_all_fails_with_the_error_of_its_mapper() {
    let mapper = Mapper::new(|_, _: &Object<String>| Err("test error"));
    let state = Arc::new(object("/a/1", ""));
    let error = mapper.map_all(&Caches::default(), [&state]).unwrap_err();
    assert_eq!(error.to_string(), "test error");
}
