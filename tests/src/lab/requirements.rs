//! Requirements of some tests beyond namespaces. A missing one fails the test with its name.

use nix::{errno::Errno, sys::utsname::uname};

use super::{LabError, Namespace, Result};

/// Fails on a kernel older than `wanted` (major, minor), which does not support `what`.
pub fn need_linux(wanted: (u32, u32), what: &str) -> Result<()> {
    let failed = |errno: Errno| LabError::system("ask for the kernel's release", errno);
    let release = uname()
        .map_err(failed)?
        .release()
        .to_string_lossy()
        .into_owned();
    if version(&release).is_none_or(|version| version >= wanted) {
        return Ok(());
    }
    let (major, minor) = wanted;
    Err(LabError::Unexpected(format!(
        "this test needs Linux {major}.{minor} or newer, for {what}; this is {release}"
    )))
}

/// The major and minor version of a kernel release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Loads a ruleset with the `nft` command.
pub fn load_ruleset(namespace: &Namespace, ruleset: &str) -> Result<()> {
    namespace.exec_with_input(&["nft", "-f", "-"], ruleset).map(drop).map_err(|error| {
        let text = error.to_string();
        if text.contains("Message too long") {
            LabError::Unexpected(format!(
                "this test needs a larger send buffer for nft, as root: sysctl -w net.core.wmem_max=4194304 ({text})"
            ))
        } else {
            error
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_of_release_is_its_first_two_numbers() {
        for (release, expected) in [
            ("6.18.44-fc-v657", Some((6, 18))),
            ("5.10.0-28-amd64", Some((5, 10))),
            ("7.3-rc1", Some((7, 3))),
            ("unknown", None),
        ] {
            assert_eq!(version(release), expected, "{release}");
        }
        assert!(version("6.1.0") < version("6.9.0") && version("6.9.0") < version("6.12.0"));
    }
}
