//! The check of imports on small crates.

use std::path::Path;

use super::{graph::Arrows, module::modules};

/// The dependencies of a crate with these files, the first of which is its root, and the number of cycles.
fn arrows(files: &[(&str, &str)]) -> (Vec<String>, usize) {
    let read = |path: &Path| {
        files
            .iter()
            .find(|(name, _)| Path::new(name) == path)
            .map(|(_, text)| (*text).to_owned())
    };
    let modules = modules(Path::new(files[0].0), &read);
    let arrows = Arrows::of(&modules);
    let sentences = arrows
        .iter()
        .map(|(from, to, _)| format!("{} -> {}", from.display(), to.display()));
    (sentences.collect(), arrows.circles().len())
}

#[test]
fn parent_and_child_that_use_each_other_are_a_circle() {
    let files = [
        ("lib.rs", "mod a; use a::Child; pub struct Root(Child);"),
        ("a.rs", "pub struct Child(super::Root);"),
    ];
    assert_eq!(
        arrows(&files),
        (vec!["a.rs -> lib.rs".into(), "lib.rs -> a.rs".into()], 1)
    );
}

#[test]
fn declaration_of_a_child_is_no_arrow() {
    let files = [
        ("lib.rs", "mod a; pub struct Root;"),
        ("a.rs", "impl Clone for super::Root {}"),
    ];
    assert_eq!(arrows(&files), (vec!["a.rs -> lib.rs".into()], 0));
}

#[test]
fn reexported_name_leads_to_the_module_that_defines_it() {
    let files = [
        (
            "lib.rs",
            "mod a; mod b; pub use self::a::{A as Renamed}; pub use b::*;",
        ),
        ("a.rs", "pub struct A;"),
        (
            "b/mod.rs",
            "use super::Renamed; mod c; pub use self::c::C; fn b(_: crate::C) {}",
        ),
        ("b/c.rs", "pub struct C; fn c() { crate::Renamed::new() }"),
    ];
    let expected = [
        "b/c.rs -> a.rs",
        "b/mod.rs -> a.rs",
        "b/mod.rs -> b/c.rs",
        "lib.rs -> a.rs",
    ];
    let (found, circles) = arrows(&files);
    assert!(
        expected
            .iter()
            .all(|arrow| found.iter().any(|found| found == arrow)),
        "{found:?}"
    );
    assert_eq!(circles, 0, "{found:?}");
}

#[test]
fn unit_tests_are_left_out_and_features_are_not() {
    let child = "#[cfg(test)] mod tests { use crate::Root; } #[cfg(test)] fn f(_: crate::Root) {}
        pub struct A { #[cfg(test)] root: crate::Root }";
    let files = [("lib.rs", "mod a; pub struct Root(a::A);"), ("a.rs", child)];
    assert_eq!(arrows(&files), (vec!["lib.rs -> a.rs".into()], 0));
    let child = "#[cfg(any(test, feature = \"testing\"))] fn f(_: crate::Root) {} pub struct A;";
    let files = [("lib.rs", "mod a; pub struct Root(a::A);"), ("a.rs", child)];
    assert_eq!(arrows(&files).1, 1);
}

#[test]
fn paths_in_macros_attributes_and_blocks_are_arrows() {
    for text in [
        "fn f() { println!(\"{}\", super::root()); }",
        "fn f() { select! { _ = x => { vec![crate::root()] } } }",
        "#[serde(with = \"crate::root\")] struct A;",
        "#[arg(value_parser = super::root)] struct A;",
        "fn f() { use super::root; root() }",
        "fn f() { rooted!() }",
        "fn f() { let x: Vec<super::Root> = g(); }",
        "mod inner { fn f() { super::super::root() } }",
    ] {
        let files = [
            (
                "lib.rs",
                "macro_rules! rooted { () => {} } mod a; fn root() {} struct Root;",
            ),
            ("a.rs", text),
        ];
        assert_eq!(arrows(&files).0, ["a.rs -> lib.rs"], "{text}");
    }
}

#[test]
fn methods_added_to_a_type_that_calls_them_are_a_circle() {
    let files = [
        (
            "lib.rs",
            "mod a; pub struct Root; impl Root { fn f(&self) { self.added() } }",
        ),
        ("a.rs", "impl super::Root { pub fn added(&self) {} }"),
    ];
    assert_eq!(arrows(&files).1, 1);
}

#[test]
fn folders_are_circular_although_their_files_are_not() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "mod low; mod high;"),
        ("a/low.rs", "pub struct Low;"),
        ("a/high.rs", "use crate::b::B;"),
        ("b.rs", "pub struct B(crate::a::low::Low);"),
    ];
    assert_eq!(arrows(&files).1, 1);
}

#[test]
fn function_named_like_a_module_is_not_taken_for_it() {
    let files = [
        (
            "lib.rs",
            "mod a; mod b; #[path = \"far/b.rs\"] mod c; fn a() { a::A; } fn c() {}",
        ),
        ("a.rs", "pub struct A;"),
        ("b.rs", "use crate::{a::A, c::C};"),
        ("far/b.rs", "pub struct C;"),
    ];
    assert_eq!(
        arrows(&files).0,
        ["b.rs -> a.rs", "b.rs -> far/b.rs", "lib.rs -> a.rs"]
    );
}
