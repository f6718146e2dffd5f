//! Links jemalloc's settings into every binary that uses this crate, from wherever it is built.

fn main() {
    println!("cargo::rerun-if-changed=malloc_conf.c");
    // `+whole-archive`: jemalloc has a weak definition of the same symbol, and for a symbol that is defined already, even weakly,
    // the linker takes no member out of an archive.
    cc::Build::new()
        .file("malloc_conf.c")
        .link_lib_modifier("+whole-archive")
        .compile("contiv_malloc_conf");
}
