//! Compiles the messages with prost and derives their JSON form with pbjson.

use std::{env, error::Error, fs, path::PathBuf};

const FILES: [&str; 9] = [
    "pod.proto",
    "service.proto",
    "endpoints.proto",
    "endpointslice.proto",
    "externalworkload.proto",
    "node.proto",
    "namespace.proto",
    "ipalloc.proto",
    "vppnode.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    let descriptors = PathBuf::from(env::var("OUT_DIR")?).join("descriptors.bin");
    let files: Vec<String> = FILES.iter().map(|file| format!("proto/{file}")).collect();

    prost_build::Config::new()
        .btree_map(["."])
        .file_descriptor_set_path(&descriptors)
        .compile_protos(&files, &["proto"])?;
    pbjson_build::Builder::new()
        .register_descriptors(&fs::read(&descriptors)?)?
        .btree_map(["."])
        .preserve_proto_field_names()
        .ignore_unknown_fields()
        .build(&["."])?;
    println!("cargo:rerun-if-changed=proto");
    Ok(())
}
