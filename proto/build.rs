//! Compiles the messages with prost and derives their JSON form with pbjson.

use std::{
    env,
    error::Error,
    fs, io,
    path::{Path, PathBuf},
};

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
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let descriptors = out.join("descriptors.bin");
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
    for file in FILES {
        read_numbers_by_ours(&out.join(file).with_extension("serde.rs"))?;
    }
    println!("cargo:rerun-if-changed=proto");
    Ok(())
}

/// Replaces pbjson's numbers; see `src/number.rs`.
fn read_numbers_by_ours(path: &Path) -> io::Result<()> {
    let code = fs::read_to_string(path)?;
    fs::write(
        path,
        code.replace(
            "::pbjson::private::NumberDeserialize",
            "crate::number::Number",
        ),
    )
}
