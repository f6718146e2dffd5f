//! Each kind of mutant becomes code with a switch, and the code around it stays.

use serde_json::json;

use super::*;
use crate::edit;

/// A mutant of a text that the source has once, in its first line.
fn mutant(number: u32, genre: &str, source: &str, text: &str, replacement: &str) -> Mutant {
    let at = source.find(text).unwrap() + 1;
    let position = |column| json!({ "line": 1, "column": column });
    let span = json!({ "start": position(at), "end": position(at + text.len()) });
    let value = json!({ "number": number, "file": "a.rs", "genre": genre, "replacement": replacement, "span": span });
    serde_json::from_value(value).unwrap()
}

/// The source with its mutants, with a short name of the switch.
fn planted(source: &str, mutants: &[Mutant]) -> String {
    let mutants: Vec<&Mutant> = mutants.iter().collect();
    let (edits, unplaced) = edits(source, &mutants).unwrap();
    assert_eq!(unplaced, BTreeMap::new());
    let (text, regions) = edit::apply(source, "a.rs", &edits);
    syn::parse_file(&text).unwrap();
    for region in regions.iter().filter(|region| region.is_own) {
        let own = &text[region.start..region.end];
        assert!(
            own.contains(&format!("crate::contiv_mutant::is({})", region.mutant)),
            "{own}"
        );
    }
    text.replace("crate::contiv_mutant::is", "is")
}

#[test]
fn function_value_returns_before_the_body() {
    let source = "fn a() -> bool { b() }";
    let mutants = [
        mutant(1, "FnValue", source, "b()", "true"),
        mutant(2, "FnValue", source, "b()", "false"),
    ];
    assert_eq!(
        planted(source, &mutants),
        "fn a() -> bool { if is(1) { return true; } if is(2) { return false; } b() }"
    );
}

#[test]
fn operators_within_one_another_are_each_switched() {
    let source = "fn a() -> bool { b && c < d }";
    let mutants = [
        mutant(1, "BinaryOperator", source, "&&", "||"),
        mutant(2, "BinaryOperator", source, "<", "<="),
    ];
    assert_eq!(
        planted(source, &mutants),
        "fn a() -> bool { (if is(1) { b || c < d } else { b && (if is(2) { c <= d } else { c < d }) }) }"
    );
}

#[test]
fn mutants_of_one_operator_share_its_place() {
    let source = "fn a() { b += 1; }";
    let mutants = [
        mutant(1, "BinaryOperator", source, "+=", "-="),
        mutant(2, "BinaryOperator", source, "+=", "*="),
    ];
    assert_eq!(
        planted(source, &mutants),
        "fn a() { (if is(1) { b -= 1 } else if is(2) { b *= 1 } else { b += 1 }); }"
    );
}

#[test]
fn negation_is_deleted_by_its_switch() {
    let source = "fn a() -> bool { !b() }";
    let mutants = [mutant(1, "UnaryOperator", source, "!", "")];
    assert_eq!(
        planted(source, &mutants),
        "fn a() -> bool { (if is(1) { b() } else { !b() }) }"
    );
}

#[test]
fn arm_without_guard_gets_one() {
    let source = "fn a() { match b { Some(_) => c(), _ => d() } }";
    let mutants = [mutant(1, "MatchArm", source, "Some(_) => c()", "")];
    assert_eq!(
        planted(source, &mutants),
        "fn a() { match b { Some(_) if !is(1) => c(), _ => d() } }"
    );
}

#[test]
fn guard_is_switched_to_true_and_to_false() {
    let source = "fn a() { match b { c if d || e => 1, _ => 2 } }";
    let mutants = [
        mutant(1, "MatchArmGuard", source, "d || e", "true"),
        mutant(2, "MatchArmGuard", source, "d || e", "false"),
        mutant(3, "BinaryOperator", source, "||", "&&"),
        mutant(4, "MatchArm", source, "c if d || e => 1", ""),
    ];
    assert_eq!(
        planted(source, &mutants),
        "fn a() { match b { c if (!is(4) && (is(1) || (!is(2) && ((if is(3) { d && e } else { d || e }))))) => 1, _ => 2 } }"
    );
}

#[test]
fn deleted_field_is_that_of_the_struct_update() {
    let source = "fn a() -> B { B { c: 1, d, ..e } }";
    let mutants = [
        mutant(1, "StructField", source, "c: 1", ""),
        mutant(2, "StructField", source, "d,", ""),
    ];
    let base = |number, member: &str| {
        format!("(if is({number}) {{ let base: B = Clone::clone(&e); base.{member} }} else")
    };
    let expected = format!(
        "fn a() -> B {{ B {{ c: {} {{ 1 }}), d: {} {{ d }}), ..e }} }}",
        base(1, "c"),
        base(2, "d")
    );
    assert_eq!(planted(source, &mutants), expected);
}

#[test]
fn code_that_cannot_be_switched_is_left_out() {
    for (source, text) in [
        ("const fn a() -> bool { b == c }", "=="),
        ("const A: u8 = 1 + 1;", "+"),
        ("fn a() { if let Some(b) = c && d {} }", "&&"),
    ] {
        let mutant = mutant(7, "BinaryOperator", source, text, "^");
        let (edits, unplaced) = edits(source, &[&mutant]).unwrap();
        assert!(edits.is_empty() && unplaced.contains_key(&7), "{source}");
    }
    let source = "fn a() -> impl Iterator<Item = u8> { b() }";
    let mutant = mutant(7, "FnValue", source, "b()", "std::iter::empty()");
    let (edits, unplaced) = edits(source, &[&mutant]).unwrap();
    assert!(edits.is_empty() && unplaced.contains_key(&7));
}
