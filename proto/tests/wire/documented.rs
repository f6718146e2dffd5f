//! Checks the examples of `docs/builders/stored-data.md`.

use contiv_proto::{Key, Kind, Object};

const PAGE: &str = include_str!("../../../docs/builders/stored-data.md");

#[test]
fn values_on_page_decode_as_objects_of_their_keys() {
    let mut lines = PAGE.lines();
    let mut shown = Vec::new();
    while let Some(line) = lines.next() {
        if let Some(path) = line
            .strip_prefix("etcdctl put ")
            .and_then(|rest| rest.strip_suffix(" \\"))
        {
            let key = Key::parse(path).unwrap().unwrap();
            let value = lines.next().unwrap().trim().trim_matches('\'');
            let object = Object::decode(&key, value.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(object.encode().unwrap()).unwrap(), value);
            shown.push(key.kind());
        }
    }
    assert_eq!(shown, [Kind::Service, Kind::Endpoints]);
}

#[test]
fn errors_on_page_are_those_of_decoding() {
    let key = Key::new(Kind::Service, "default", "web").unwrap();
    for value in [
        r#"{"port":[{},{"nodePort":"http"}]}"#,
        r#"{"port":[{"target_port":{"type":"FLOAT"}}]}"#,
        r#"{"name":"web","namespace":"prod"}"#,
        r#"{"name":"web""#,
        "",
    ] {
        let error = Object::decode(&key, value.as_bytes())
            .expect_err(value)
            .to_string();
        assert!(
            PAGE.lines().any(|line| line == error),
            "not on the page: {error}"
        );
    }
}

#[test]
fn keys_on_page_are_the_prefixes_of_the_types() {
    for kind in Kind::ALL {
        let below_root = Key::prefix(kind).replace(contiv_proto::key::ROOT, "");
        let row = format!("| `{kind}` | `{below_root}<");
        assert!(
            PAGE.lines().any(|line| line.starts_with(&row)),
            "no row {row}"
        );
    }
}
