//! The conversion of one setting of kube-proxy.

use std::{borrow::Cow, fmt};

/// How a setting is converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli::commands::migrate) enum Conversion {
    /// agent.toml gets settings for it.
    Set,
    /// contiv does the same by default.
    Same,
    /// contiv has no use for it.
    NotNeeded,
    /// contiv does not do this; an administrator has to.
    ByHand,
    /// This version of contiv does not know the setting or its value.
    Unknown,
}

impl fmt::Display for Conversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Set => "set",
            Self::Same => "the same",
            Self::NotNeeded => "not needed",
            Self::ByHand => "by hand",
            Self::Unknown => "unknown",
        })
    }
}

/// A key of agent.toml, and its value.
pub(super) type Setting = (&'static str, toml::Value);

/// One setting of kube-proxy, converted.
pub(super) struct ConvertedSetting {
    pub(super) conversion: Conversion,
    pub(super) detail: Cow<'static, str>,
    /// Settings for agent.toml.
    pub(super) settings: Vec<Setting>,
    /// A sysctl that kube-proxy sets, as in `NAME = VALUE`.
    pub(super) sysctl: Option<String>,
}

impl ConvertedSetting {
    pub(super) fn new(conversion: Conversion, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            conversion,
            detail: detail.into(),
            settings: Vec::new(),
            sysctl: None,
        }
    }

    pub(super) fn set(key: &'static str, value: impl Into<toml::Value>) -> Self {
        Self::set_all([(key, value.into())])
    }

    pub(super) fn set_all(settings: impl Into<Vec<Setting>>) -> Self {
        let settings = settings.into();
        let texts: Vec<String> = settings
            .iter()
            .map(|(key, value)| format!("{key} = {value}"))
            .collect();
        Self {
            settings,
            ..Self::new(Conversion::Set, texts.join(", "))
        }
    }

    pub(super) fn same(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Conversion::Same, detail)
    }

    pub(super) fn not_needed(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Conversion::NotNeeded, detail)
    }

    pub(super) fn by_hand(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Conversion::ByHand, detail)
    }

    /// kube-proxy sets this sysctl; contiv sets none.
    pub(super) fn sysctl(name: &str, value: impl fmt::Display) -> Self {
        let sysctl = format!("{name} = {value}");
        let detail =
            format!("sysctl {sysctl}; contiv does not set it, and the next boot resets it");
        Self {
            sysctl: Some(sysctl),
            ..Self::by_hand(detail)
        }
    }

    pub(super) fn unknown() -> Self {
        Self::new(
            Conversion::Unknown,
            "contiv does not know this setting; look up what it does",
        )
    }

    /// The value has the wrong type, or the setting does not allow it.
    pub(super) fn bad_value() -> Self {
        Self::new(Conversion::Unknown, "not a valid value of this setting")
    }
}
