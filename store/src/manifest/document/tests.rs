use std::fmt::Write;

use serde_json::json;

use super::*;

fn read(text: &str) -> Vec<Result<Option<Value>, String>> {
    let read = |document: &Document<'_>| {
        parse(document, usize::MAX).map_err(|error| describe(document, usize::MAX, error))
    };
    split(text).iter().map(read).collect()
}

fn value(text: &str) -> Value {
    let documents = read(text);
    assert_eq!(documents.len(), 1, "{documents:?}");
    documents.into_iter().next().unwrap().unwrap().unwrap()
}

#[test]
fn documents_are_cut_at_their_separators() {
    let expected = vec![Ok(Some(json!({"a": 1}))), Ok(Some(json!({"b": 2})))];
    for text in [
        "a: 1\n---\nb: 2\n",
        "---\na: 1\n---\nb: 2",
        "\u{feff}--- # first\na: 1\n--- {b: 2}\n",
        "---\r\na: 1\r\n---\r\nb: 2\r\n",
        "# head\n---\n---\na: 1\n...\n---\n# nothing\n---\nb: 2\n---\n",
        "a: 1\n--- \nb: 2\n",
    ] {
        assert_eq!(read(text), expected, "{text:?}");
    }
}

#[test]
fn separator_lookalike_separates_nothing() {
    assert_eq!(value("a: |\n  ---\n  b\n"), json!({"a": "---\nb\n"}));
    assert_eq!(value("a: ---b\n"), json!({"a": "---b"}));
    assert_eq!(value("---a: 1\n"), json!({"---a": 1}));
}

#[test]
fn json_objects_that_follow_each_other_are_documents() {
    let expected = vec![
        Ok(Some(json!({"a": {"x": "}{"}}))),
        Ok(Some(json!({"b": [2]}))),
    ];
    for text in [
        "{\"a\":{\"x\":\"}{\"}}\n{\"b\":[2]}\n",
        "{\"a\":{\"x\":\"}{\"}}{\"b\":[2]}",
        "\u{feff}{\n  \"a\": {\n    \"x\": \"}{\"\n  }\n}\r\n \n{\n  \"b\": [2]\n}\n# end\n",
        "{\"a\":{\"x\":\"}{\"}}\n---\n{\"b\":[2]}\n---\n",
        "a: {x: '}{'}\n---\n{\"b\":[2]}\n",
        "{a: {x: '}{'}}\n---\nb: [2]\n",
    ] {
        assert_eq!(read(text), expected, "{text:?}");
    }
}

#[test]
fn broken_json_line_is_named_and_lines_around_it_are_read() {
    let documents = read("{\"a\":1}\n{\"b\":2\n{\"c\":3}\n{\"d\":4}\n");
    let good = [json!({"a": 1}), json!({"c": 3}), json!({"d": 4})];
    assert_eq!(
        documents
            .iter()
            .filter_map(|it| it.clone().ok()?)
            .collect::<Vec<_>>(),
        good
    );
    let error = documents[1].clone().unwrap_err();
    assert!(
        error.contains("line 2") || error.contains("line 3"),
        "{error}"
    );
    assert_eq!(
        read("{\"a\":1}, {\"b\":2}")
            .iter()
            .filter(|it| it.is_err())
            .count(),
        1
    );
}

#[test]
fn empty_documents_and_comments_are_skipped() {
    for text in ["", "\n\n", "# a\n#b", "---\n", "---\n---\n# c\n...\n"] {
        assert_eq!(read(text), vec![], "{text:?}");
    }
    assert_eq!(read("null\n"), vec![Ok(None)]);
}

#[test]
fn broken_document_is_named_with_its_line_and_others_are_read() {
    let documents = read("a: 1\n---\nb: 2\nc: [\n---\nd: 4\n");
    assert_eq!(documents[0], Ok(Some(json!({"a": 1}))));
    let error = documents[1].clone().unwrap_err();
    assert!(
        error.contains("line 4") || error.contains("line 5"),
        "{error}"
    );
    assert_eq!(documents[2], Ok(Some(json!({"d": 4}))));
}

#[test]
fn quoted_scalar_is_text_and_unquoted_has_its_type() {
    let text = r#"{q: "80", s: '1', n: 80, f: 1.5, t: true, y: yes, on: "on", e: null, tilde: ~, o: 0o17, v: v1.0}"#;
    let expected = json!({"q": "80", "s": "1", "n": 80, "f": 1.5, "t": true, "y": "yes", "on": "on", "e": null,
        "tilde": null, "o": 15, "v": "v1.0"});
    assert_eq!(value(text), expected);
}

#[test]
fn json_is_read_with_its_tabs_and_escapes() {
    let text =
        "{\n\t\"a\": \"\\u00e4\\/\\ud83d\\ude00\\n\",\n\t\"b\": [1,2, -3, 1e3],\"c\":{}\n}\n";
    assert_eq!(
        value(text),
        json!({"a": "ä/😀\n", "b": [1, 2, -3, 1000.0], "c": {}})
    );
}

#[test]
fn anchors_and_merge_keys_are_resolved() {
    assert_eq!(
        value("a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}\n"),
        json!({"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 1, "e": 2}})
    );
}

#[test]
fn key_given_twice_is_error() {
    let error = read("a: 1\nb: {c: 1, c: 2}\n")[0].clone().unwrap_err();
    assert!(
        error.contains("duplicate") && error.contains("line 2"),
        "{error}"
    );
}

#[test]
fn document_that_repeats_itself_billion_times_is_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..10 {
        let before = format!("*a{}, ", i - 1).repeat(10);
        writeln!(text, "a{i}: &a{i} [{}]", before.trim_end_matches(", ")).unwrap();
    }
    assert!(read(&text)[0].is_err());
}

#[test]
fn depth_has_limit() {
    let text = "[".repeat(100_000);
    assert!(read(&text)[0].is_err());
    let text = "a:\n ".to_owned() + &"- ".repeat(5_000) + "x\n";
    assert!(read(&text)[0].is_err());
}

#[test]
fn long_document_is_within_limits() {
    let text = "- {a: b, c: 1, d: [x, y]}\n".repeat(20_000);
    assert_eq!(value(&text).as_array().unwrap().len(), 20_000);
}
