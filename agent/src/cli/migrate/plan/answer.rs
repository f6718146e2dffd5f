//! What becomes of one setting.

use std::{borrow::Cow, fmt};

/// What becomes of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli::migrate) enum Conversion {
    /// It is in agent.toml.
    Set,
    /// contiv does the same without being told.
    Same,
    /// contiv has nothing that needs it.
    NotNeeded,
    /// contiv does not do it. Somebody has to.
    ByHand,
    /// Not a setting of kube-proxy that this version of contiv knows.
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

/// Key and value of agent.toml.
pub(super) type Setting = (&'static str, toml::Value);

/// What becomes of one setting.
pub(super) struct Answer {
    pub(super) conversion: Conversion,
    pub(super) detail: Cow<'static, str>,
    pub(super) settings: Vec<Setting>,
    pub(super) sysctl: Option<String>,
}

impl Answer {
    pub(super) fn new(conversion: Conversion, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { conversion, detail: detail.into(), settings: Vec::new(), sysctl: None }
    }

    pub(super) fn set(key: &'static str, value: impl Into<toml::Value>) -> Self {
        Self::set_all([(key, value.into())])
    }

    pub(super) fn set_all(settings: impl Into<Vec<Setting>>) -> Self {
        let settings = settings.into();
        let texts: Vec<String> = settings.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        Self { settings, ..Self::new(Conversion::Set, texts.join(", ")) }
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
        let detail = format!("sysctl {sysctl}; contiv leaves it, and it is lost with the next boot");
        Self { sysctl: Some(sysctl), ..Self::by_hand(detail) }
    }

    pub(super) fn unknown() -> Self {
        Self::new(Conversion::Unknown, "not a setting that is known here; look up what it does")
    }

    /// A value of another type, or none that the setting has.
    pub(super) fn bad_value() -> Self {
        Self::new(Conversion::Unknown, "kube-proxy has no such value for it")
    }
}
