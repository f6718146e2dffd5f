//! Links jemalloc's settings into every binary that uses this crate, from wherever it is built.

fn main() {
    println!("cargo::rerun-if-changed=malloc_conf.c");
    // Whole, since the linker takes nothing from an archive for a symbol that has a definition already, even a weak one.
    cc::Build::new().file("malloc_conf.c").link_lib_modifier("+whole-archive").compile("contiv_malloc_conf");
}
