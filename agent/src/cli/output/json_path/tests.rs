//! Templates select and print as kubectl's do.

use serde_json::{Value, json};

use super::{Path, Template};

fn render(template: &str, value: &Value) -> Result<String, String> {
    let template: Template = template.parse().map_err(|error| format!("{error}"))?;
    template.render(value).map_err(|error| error.to_string())
}

fn nodes() -> Value {
    json!({
        "kind": "List",
        "items": [
            {
                "metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "one"}},
                "status": {
                    "capacity": {"cpu": "4"}, "ready": true, "load": 0.5,
                    "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
                },
            },
            {
                "metadata": {"name": "n2", "labels": {"kubernetes.io/hostname": "two"}},
                "status": {
                    "capacity": {"cpu": "8"}, "ready": false, "load": 2, "reason": "drained, (by hand)",
                    "addresses": [
                        {"type": "InternalIP", "address": "192.0.2.2"}, {"type": "Hostname", "address": "two"},
                    ],
                },
            },
        ],
        "numbers": [1, 2, 3, 4],
        "nothing": null,
    })
}

#[test]
fn templates_print_what_kubectl_prints() {
    for (template, expected) in [
        ("plain text", "plain text"),
        ("{.kind}", "List"),
        ("{ .kind }", "List"),
        ("{$.kind}{@.kind}", "ListList"),
        ("before-{.missing}after", "before-after"),
        ("{.missing.deeper[3].still}", ""),
        ("{.nothing}", "null"),
        // Quotes and escapes.
        (r#"{"{"}{"\t\n\"\\"}{'it\'s'}"#, "{\t\n\"\\it's"),
        (r#"{"a"}{'b'}"#, "ab"),
        // Values of each type.
        (
            "{.items[0].status.ready} {.items[0].status.load} {.items[1].status.load}",
            "true 0.5 2",
        ),
        ("{.numbers}", "[1,2,3,4]"),
        ("{.items[0].status.capacity}", r#"{"cpu":"4"}"#),
        // Lists.
        ("{.items[*].metadata.name}", "n1 n2"),
        (
            "{.items[*].status.addresses[*].address}",
            "192.0.2.1 192.0.2.2 two",
        ),
        ("{.numbers[0]} {.numbers[-1]} {.numbers[-2]}", "1 4 3"),
        (
            "{.numbers[0:2]}|{.numbers[:2]}|{.numbers[2:]}|{.numbers[-1:]}",
            "1 2|1 2|3 4|4",
        ),
        (
            "{.numbers[:4:2]}|{.numbers[1::2]}|{.numbers[::3]}|{.numbers[1:1]}",
            "1 3|2 4|1 4|",
        ),
        ("{.numbers[-5:-5]}|{.numbers[5:5]}|{.numbers[-9:-9]}", "||"),
        ("{.numbers[0:-1]}", "1 2 3"),
        ("{.numbers[0,2,3]}", "1 3 4"),
        ("{.numbers[0:2,3]}", "1 2 4"),
        // Names.
        (
            r"{.items[0].metadata.labels.kubernetes\.io/hostname}",
            "one",
        ),
        (
            r"{.items[0].metadata.labels['kubernetes\.io/hostname']}",
            "one",
        ),
        (
            r#"{.items[0]['metadata.name']}{.items[0]["metadata"].name}"#,
            "n1n1",
        ),
        (
            "{.items[*]['metadata.name', 'status.capacity']}",
            r#"n1 n2 {"cpu":"4"} {"cpu":"8"}"#,
        ),
        // Everything, and everything below.
        ("{.items[0].status.capacity.*}", "4"),
        ("{..name}", "n1 n2"),
        ("{..address}", "192.0.2.1 192.0.2.2 two"),
        ("{...cpu}", "4 8"),
        ("{.items..addresses[0].address}", "192.0.2.1 192.0.2.2"),
        ("{.numbers..}", "[1,2,3,4]"),
        // Ranges.
        (
            "{range .items[*]}{.metadata.name}, {end}{.kind}",
            "n1, n2, List",
        ),
        (
            r#"{range .items[*]}{.metadata.name}{"\t"}{@.status.ready}{"\n"}{end}"#,
            "n1\ttrue\nn2\tfalse\n",
        ),
        (
            "{range .items[*]}{range .status.addresses[*]}{.address},{end};{end}",
            "192.0.2.1,;192.0.2.2,two,;",
        ),
        ("{range .missing[*]}{.a}{end}{.kind}", "List"),
        (
            "{range .items[*]}[{.metadata.name}, {.status.capacity}] {end}",
            r#"[n1, {"cpu":"4"}] [n2, {"cpu":"8"}] "#,
        ),
        // Filters.
        (
            r#"{.items[?(@.metadata.name=="n2")].status.capacity.cpu}"#,
            "8",
        ),
        (
            "{.items[?( @.metadata.name == 'n2' )].status.capacity.cpu}",
            "8",
        ),
        (
            r#"{.items[?(@.metadata.labels.kubernetes\.io/hostname=="one")].metadata.name}"#,
            "n1",
        ),
        ("{.items[?(@.status.reason)].metadata.name}", "n2"),
        ("{.items[?(@.status.addresses[1])].metadata.name}", "n2"),
        ("{.items[?(@..ready==true)].metadata.name}", "n1"),
        (
            r#"{.items[?(@.status.reason=="drained, (by hand)")].metadata.name}"#,
            "n2",
        ),
        (
            r#"{.items[*].status.addresses[?(@.type!="InternalIP")].address}"#,
            "two",
        ),
        (
            "{.numbers[?(@<3)]}|{.numbers[?(@ >= 3)]}|{.numbers[?(@>3)]}|{.numbers[?(@<=1)]}",
            "1 2|3 4|4|1",
        ),
        ("{.items[?(@.status.load>0.5)].metadata.name}", "n2"),
        (
            r#"{.items[?(@.status.addresses[?(@.address=="two")])].metadata.name}"#,
            "n2",
        ),
    ] {
        assert_eq!(
            render(template, &nodes()),
            Ok(expected.to_owned()),
            "{template}"
        );
    }
}

#[test]
fn wrong_template_names_its_column() {
    for (template, expected) in [
        ("{.a", "column 1 of the template: no } for this {"),
        ("text {.a\n", "column 6 of the template: no } for this {"),
        (
            "{.a]}",
            "column 4 of the template: ']' is not expected here",
        ),
        ("{hello}", "column 2 of the template: unknown word hello"),
        (
            "{.a[}",
            "column 5 of the template: expected an index, a slice, * or a name in quotes",
        ),
        ("{.a[0}", "column 4 of the template: no ] for this ["),
        (
            "{.a[1:2:3:4]}",
            "column 5 of the template: expected an index, or a slice",
        ),
        ("{.a[1-2]}", "column 5 of the template: 1-2 is no index"),
        ("{.a[99999999999999999999]}", "column 5 of the template"),
        (
            "{.a[::0]}",
            "column 5 of the template: the interval of a slice must be positive",
        ),
        ("{.a['b]}", "column 6 of the template: no ' after this name"),
        ("{\"a}", "column 3 of the template: no \" after this text"),
        (
            r#"{"\x"}"#,
            "column 4 of the template: after a backslash may come n, t, r",
        ),
        ("{.a[?(@.b]}", "column 10 of the template"),
        ("{.a[?(@.b=='x']}", "column 15 of the template"),
        (
            "{.a[?(@.b=~'x')]}",
            "column 10 of the template: unknown operator =~",
        ),
        (
            "{.a[?(@.b==)]}",
            "column 12 of the template: expected a value to compare with",
        ),
        (
            "{.a[?@.b]}",
            "column 5 of the template: a filter is written [?(…)]",
        ),
        ("{....a}", "column 4 of the template: `..` follows another"),
        ("{1.2.3}", "column 2 of the template: 1.2.3 is no number"),
        (
            "{range .a[*]}{.b}",
            "column 1 of the template: no {end} after this {range …}",
        ),
        (
            "{.b}{end}",
            "column 5 of the template: no {range …} before this {end}",
        ),
        (
            r"{.a\",
            "column 5 of the template: expected a character after the backslash",
        ),
        (
            &"{range .a}".repeat(40),
            "column 321 of the template: more than 32 in each other",
        ),
        (
            &("{".to_owned() + &"[?(@".repeat(40)),
            "more than 32 in each other",
        ),
    ] {
        let error = template.parse::<Template>().unwrap_err().to_string();
        assert!(error.contains(expected), "{template}: {error}");
    }
}

#[test]
fn template_that_does_not_fit_says_where() {
    for (template, expected) in [
        (
            "{.numbers[4]}",
            "column 11 of the template: the index 4 is outside of the list, whose length is 4",
        ),
        ("{.numbers[-5]}", "the index -5 is outside of the list"),
        (
            "{.numbers[2:9]}",
            "column 11 of the template: the slice is outside of the list, whose length is 4",
        ),
        ("{.numbers[3:1]}", "the slice is outside of the list"),
        ("{.numbers[-9223372036854775808]}", "is outside of the list"),
        (
            "{.kind[0]}",
            "column 8 of the template: the text \"List\" is no list",
        ),
        (
            "{.items[0].status[?(@.a)]}",
            "column 18 of the template: an object is no list",
        ),
        (
            r#"{.numbers[?(@=="1")]}"#,
            "cannot compare the number 1 with the text \"1\"",
        ),
        (
            "{.items[?(@.status.*==1)]}",
            "values are selected; compare one",
        ),
    ] {
        let error = render(template, &nodes()).unwrap_err();
        assert!(error.contains(expected), "{template}: {error}");
    }
}

#[test]
fn null_is_equal_to_nothing_else() {
    let list = json!([{"a": null, "b": 1}, {"a": 2, "b": 2}, {"b": 3}]);
    for (filter, expected) in [("==2", "2"), ("!=2", "1"), ("<3", "2")] {
        let template = format!("{{[?(@.a{filter})].b}}");
        assert_eq!(
            render(&template, &list),
            Ok(expected.to_owned()),
            "{filter}"
        );
    }
}

#[test]
fn objects_are_json_and_texts_as_stored() {
    let value = json!({"a": "x\ty\r\n", "b": {"c": "\u{9b}31m\u{7f}\u{1b}"}});
    assert_eq!(render("{.a}", &value), Ok("x\ty\r\n".to_owned()));
    let object = render("{.b}", &value).unwrap();
    assert!(!object.contains(char::is_control), "{object}");
    assert_eq!(serde_json::from_str::<Value>(&object).unwrap(), value["b"]);
}

#[test]
fn single_path_needs_neither_braces_nor_a_dot() {
    let nodes = nodes();
    for path in [
        "{.items[1].metadata.name}",
        "{items[1].metadata.name}",
        ".items[1].metadata.name",
        "items[1].metadata.name",
        "$.items[1].metadata.name",
        "['items'][1].metadata.name",
    ] {
        let path: Path = path.parse().unwrap();
        assert_eq!(path.select(&nodes).unwrap(), [&json!("n2")], "{path:?}");
    }
    for (wrong, expected) in [
        ("", "expected a path such as .metadata.name"),
        ("..{", "'{' is not expected here"),
        ("{.a", "column 4 of the template: expected }"),
        ("{.a}x", "expected nothing after the path"),
    ] {
        let error = wrong.parse::<Path>().unwrap_err().to_string();
        assert!(error.contains(expected), "{wrong}: {error}");
    }
}
