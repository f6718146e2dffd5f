use contiv_proto::{Key, Object};

use super::*;

mod broken;
mod kinds;
mod round_trip;

fn parse(text: &str) -> ParsedManifests {
    parse_file("web.yaml", text)
}

/// With the strictness of an API server.
fn refused(text: &str) -> ParsedManifests {
    let mut parsed = parse(text);
    parsed.refuse_unknown_values();
    parsed
}

/// The only object of a manifest without problems.
fn object(text: &str) -> Object {
    let mut parsed = parse(text);
    assert_eq!(parsed.problems, vec![], "{text}");
    assert_eq!(parsed.objects.len(), 1, "{text}");
    parsed.objects.remove(0).object
}

/// The problems as printed.
fn problems(text: &str) -> Vec<String> {
    refused(text)
        .problems
        .iter()
        .map(ToString::to_string)
        .collect()
}

const SERVICE: &str =
    "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}";
const NODE: &str = "{apiVersion: v1, kind: Node, metadata: {name: n1}}";

#[test]
fn objects_come_in_order_with_where_they_were_read() {
    let parsed = parse(&format!("{SERVICE}\n---\n# nothing\n---\n{NODE}\n"));
    let found: Vec<_> = parsed
        .objects
        .iter()
        .map(|o| (o.source.as_str(), o.key.to_string()))
        .collect();
    assert_eq!(
        found,
        [
            ("web.yaml:1", "service default/web".to_owned()),
            ("web.yaml:2", "node n1".to_owned())
        ]
    );
    assert_eq!(
        parse(NODE).objects[0].source,
        "web.yaml",
        "a single document needs no number"
    );
}

#[test]
fn lists_of_any_kind_are_opened_and_their_items_named() {
    let text = format!(
        "apiVersion: v1\nkind: List\nitems:\n- {NODE}\n- apiVersion: v1\n  kind: List\n  items: [{SERVICE}]\n- 7\n"
    );
    let parsed = parse(&text);
    let sources: Vec<_> = parsed.objects.iter().map(|o| o.source.as_str()).collect();
    assert_eq!(sources, ["web.yaml items[0]", "web.yaml items[1] items[0]"]);
    assert_eq!(parsed.problems[0].source, "web.yaml items[2]");
    assert!(parsed.is_incomplete);

    // As from the API server: the items do not repeat their kind.
    let parsed = parse("{apiVersion: v1, kind: NodeList, items: [{metadata: {name: n2}}]}");
    assert_eq!(parsed.objects[0].key.to_string(), "node n2");
    for empty in [
        "{apiVersion: v1, kind: List}",
        "{apiVersion: v1, kind: List, items: null}",
    ] {
        assert_eq!(parse(empty), ParsedManifests::default());
    }
    assert_eq!(
        problems("{apiVersion: v1, kind: List, items: {}}"),
        ["web.yaml: List: items: expected a list"]
    );
}

#[test]
fn kinds_that_are_not_used_are_skipped() {
    let text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: b}}\n---\n\
                {apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: c}}\n---\n\
                {apiVersion: apps/v1, kind: Deployment}";
    let parsed = parse(text);
    let expected = [
        "web.yaml:1: ConfigMap b/a",
        "web.yaml:2: Service c",
        "web.yaml:3: Deployment",
    ];
    assert_eq!(parsed.skipped, expected);
    assert_eq!(
        ParsedManifests {
            skipped: Vec::new(),
            ..parsed
        },
        ParsedManifests::default()
    );
}

#[test]
fn duplicate_definition_is_reported_and_the_first_used() {
    let text = format!("{SERVICE}\n---\n{}", SERVICE.replace("80", "81"));
    let parsed = parse(&text);
    let Object::Service(service) = &parsed.objects[0].object else {
        panic!("no service")
    };
    assert_eq!((parsed.objects.len(), service.port[0].port), (1, 80));
    let problem = "web.yaml:2: Service default/web: defined in web.yaml:1 too, and that one is used; \
                   remove one of them";
    assert_eq!(parsed.problems[0].to_string(), problem);

    let mut both = parse_file("a.yaml", NODE);
    both.append(parse_file("b.yaml", NODE));
    assert_eq!((both.objects.len(), both.problems.len()), (1, 1));
    assert_eq!(both.problems[0].source, "b.yaml");
}

#[test]
fn folder_is_read_in_order_of_its_paths() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("b.yml", NODE);
    write(
        "a/c.json",
        &NODE.replace("n1", "n2").replace('{', "{\"x\": 1, "),
    );
    write("c.yaml", "a: [");
    write(".hidden.yaml", "a: [");
    write(".git/x.yaml", "a: [");
    write("notes.txt", "a: [");
    std::fs::write(folder.path().join("d.yaml"), [0xff, 0xfe, 0x00]).unwrap();
    std::os::unix::fs::symlink(folder.path(), folder.path().join("a/loop")).unwrap();

    let parsed = load_path(folder.path()).unwrap();
    let names: Vec<_> = parsed.objects.iter().map(|o| o.key.name()).collect();
    assert_eq!(names, ["n2", "n1"]);
    let sources: Vec<_> = parsed
        .problems
        .iter()
        .map(|p| p.source.rsplit('/').next().unwrap())
        .collect();
    assert_eq!(sources, ["c.yaml", "d.yaml"]);
    assert!(parsed.is_incomplete);

    assert_eq!(
        load_path(&folder.path().join("b.yml"))
            .unwrap()
            .objects
            .len(),
        1
    );
    let error = load_path(&folder.path().join("none"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("failed to read") && error.contains("/none"),
        "{error}"
    );
}

#[test]
fn yaml_that_is_written_reads_back() {
    let parsed = parse(&format!("{SERVICE}\n---\n{NODE}"));
    let values: Vec<_> = parsed.objects.iter().map(|o| to_value(&o.object)).collect();
    let again = parse(&to_yaml(&values).unwrap());
    assert_eq!(again.objects, parsed.objects);
}
