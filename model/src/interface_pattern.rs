//! Patterns of network interfaces: one name, or all names with a prefix.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

use crate::InterfaceName;

/// Bytes of a name, without the zero at its end: `IFNAMSIZ` of the kernel's `if.h`, less one.
const MAX_LEN: usize = 15;

/// The name of an interface, or with a `*` at its end the beginning of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterfacePattern {
    /// Filled up with zeroes.
    bytes: [u8; MAX_LEN],
    len: u8,
    is_prefix: bool,
}

/// A text that is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{0:?} is not the name of an interface of 1 to 15 characters, nor the beginning of one and a *"
)]
pub struct InvalidInterfacePattern(String);

impl InterfacePattern {
    /// The name, or the prefix.
    pub fn stem(&self) -> &str {
        // It was copied from a str and is cut only at its end.
        str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }

    /// True for a prefix.
    pub const fn is_prefix(&self) -> bool {
        self.is_prefix
    }

    /// True if the pattern matches this name.
    pub fn matches(&self, name: &str) -> bool {
        if self.is_prefix {
            name.starts_with(self.stem())
        } else {
            name == self.stem()
        }
    }
}

impl FromStr for InterfacePattern {
    type Err = InvalidInterfacePattern;

    /// The rules of the kernel's `dev_valid_name`; quotes and backslashes are refused too, as nft cannot write them.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidInterfacePattern(text.to_owned());
        let (stem, is_prefix) = text
            .strip_suffix('*')
            .map_or((text, false), |stem| (stem, true));
        let is_allowed = |byte: u8| byte.is_ascii_graphic() && !b"/:*\"\\".contains(&byte);
        let is_name =
            !stem.is_empty() && stem != "." && stem != ".." && stem.bytes().all(is_allowed);
        let mut bytes = [0; MAX_LEN];
        let target = bytes
            .get_mut(..stem.len())
            .filter(|_| is_name)
            .ok_or_else(invalid)?;
        target.copy_from_slice(stem.as_bytes());
        let len = u8::try_from(stem.len()).map_err(|_| invalid())?;
        Ok(Self {
            bytes,
            len,
            is_prefix,
        })
    }
}

/// A text that the kernel does not accept as an interface name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not the name of one interface, which has 1 to 15 characters")]
pub struct InvalidInterfaceName(String);

impl FromStr for InterfaceName {
    type Err = InvalidInterfaceName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_name = text
            .parse()
            .is_ok_and(|pattern: InterfacePattern| !pattern.is_prefix());
        if is_name {
            Ok(Self::new(text))
        } else {
            Err(InvalidInterfaceName(text.to_owned()))
        }
    }
}

impl fmt::Display for InterfacePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.stem())?;
        f.write_str(if self.is_prefix { "*" } else { "" })
    }
}

impl Serialize for InterfacePattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for InterfacePattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_matches_its_name_or_prefix_before_a_star() {
        let (name, prefix): (InterfacePattern, InterfacePattern) =
            ("cni0".parse().unwrap(), "veth*".parse().unwrap());
        assert_eq!(
            (name.to_string(), prefix.to_string()),
            ("cni0".to_owned(), "veth*".to_owned())
        );
        assert!(name.matches("cni0") && !name.matches("cni01") && !name.matches("cni"));
        assert!(prefix.matches("veth") && prefix.matches("veth1a2b") && !prefix.matches("vet"));
    }

    #[test]
    fn name_the_kernel_refuses_is_refused() {
        assert!("abcdefghijklmno".parse::<InterfacePattern>().is_ok());
        for text in [
            "",
            "*",
            ".",
            "..",
            "abcdefghijklmnop",
            "a b",
            "a/b",
            "a:1",
            "a*b",
            "a\"b",
            "ä",
        ] {
            let error = text.parse::<InterfacePattern>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?} is not")), "{error}");
        }
    }
}
