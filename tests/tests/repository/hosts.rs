//! Checks of the hosts that scripts and settings name: a machine's packages come from the sources that are set up on it.

use std::{fs, path::Path, process::Command};

use crate::workspace::root;

/// What may be named: identifiers of formats, and where a person reads how to install a tool.
const READ_BY_PEOPLE: [&str; 8] = [
    "github.com",
    "helm.sh",
    "json-schema.org",
    "kubernetes.io",
    "rustup.rs",
    "sh.rustup.rs",
    "www.apache.org/licenses/",
    "www.debian.org/doc/packaging-manuals/",
];
/// Names that are reserved for documentation (RFC 2606), and loopback.
const OF_EXAMPLES: [&str; 5] = [
    ".example.com",
    "example.com",
    "127.0.0.1",
    "localhost",
    "0.0.0.0",
];

/// The addresses with `http` in a text, from the host on.
fn addresses(text: &str) -> impl Iterator<Item = &str> {
    let begins = ["http://", "https://"].into_iter().flat_map(move |scheme| {
        text.match_indices(scheme)
            .map(move |(start, _)| &text[start + scheme.len()..])
    });
    begins.map(|rest| {
        let is_of_address = |c: char| c.is_ascii_alphanumeric() || ".-/_".contains(c);
        &rest[..rest.find(|c| !is_of_address(c)).unwrap_or(rest.len())]
    })
}

/// Whether a script may name this address. A host in a variable, as in `http://$host`, is none.
fn is_allowed(address: &str) -> bool {
    let host = address.split('/').next().unwrap_or_default();
    host.is_empty()
        || READ_BY_PEOPLE
            .iter()
            .any(|known| *known == host || address.starts_with(known) && known.contains('/'))
        || OF_EXAMPLES
            .iter()
            .any(|known| *known == host || known.starts_with('.') && host.ends_with(known))
}

#[test]
fn address_of_mirror_is_refused_and_others_are_not() {
    let refused = |text: &str| {
        addresses(text)
            .filter(|address| !is_allowed(address))
            .count()
    };
    assert_eq!(
        refused(
            "mirror=${MIRROR:-http://archive.example.org/debian} or https://packages.example.net"
        ),
        2
    );
    assert_eq!(
        refused(
            "http://127.0.0.1:9999, https://$host/x, https://api.example.com and https://rustup.rs"
        ),
        0
    );
    assert_eq!(
        refused("https://www.debian.org/debian"),
        1,
        "a format's address allows no other of its host"
    );
}

#[test]
fn scripts_name_no_host_of_packages() {
    let listed = Command::new("git")
        .arg("-C")
        .arg(root())
        .args(["ls-files", "-z"])
        .output()
        .expect("git");
    let names = String::from_utf8(listed.stdout).expect("text");
    let is_program = |name: &&str| {
        [
            "scripts/",
            "packaging/",
            "benches/bench-kube",
            ".github/",
            ".cargo/",
            ".config/",
            "systemd/",
        ]
        .iter()
        .any(|folder| name.starts_with(folder))
            || {
                let (path, extensions) = (Path::new(name), ["md", "lock"]);
                let extension = path
                    .extension()
                    .and_then(|extension| extension.to_str())
                    .unwrap_or_default();
                path.parent() == Some(Path::new("")) && !extensions.contains(&extension)
            }
    };
    let mut wrong = Vec::new();
    for name in names
        .split('\0')
        .filter(|name| !name.is_empty())
        .filter(is_program)
    {
        // A file may be deleted and not committed yet, or no text.
        let text = fs::read_to_string(root().join(name)).unwrap_or_default();
        wrong.extend(
            addresses(&text)
                .filter(|address| !is_allowed(address))
                .map(|address| format!("{name}: {address}")),
        );
    }
    assert!(
        wrong.is_empty(),
        "take the machine's own sources (packaging/debian-mirror):\n{}",
        wrong.join("\n")
    );
}
