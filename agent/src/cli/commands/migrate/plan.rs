//! Converts each setting of kube-proxy. Source: `KubeProxyConfiguration` v1alpha1 of Kubernetes 1.36.

mod conntrack;
mod converted_setting;
mod facts;
mod sections;

use std::fmt::Write as _;

use serde_json::Value;

pub(super) use converted_setting::Conversion;
use converted_setting::{ConvertedSetting, Setting};
use facts::KubeProxyFacts;

/// A setting of kube-proxy, and its conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// Its path, as in `conntrack.min`.
    pub(super) setting: String,
    /// None if it is not set and kube-proxy's default differs from contiv's.
    pub(super) value: Option<String>,
    pub(super) conversion: Conversion,
    pub(super) detail: String,
}

impl Line {
    /// Whether an administrator has to act on it. A default of kube-proxy was not chosen by anybody, so it never needs attention.
    pub(super) fn needs_attention(&self) -> bool {
        self.value.is_some() && matches!(self.conversion, Conversion::ByHand | Conversion::Unknown)
    }
}

/// The conversion of a whole configuration.
#[derive(Debug, Default)]
pub(super) struct Migration {
    pub(super) lines: Vec<Line>,
    settings: Vec<Setting>,
    sysctls: Vec<String>,
}

impl Migration {
    fn add(&mut self, setting: &str, value: Option<String>, converted: ConvertedSetting) {
        let ConvertedSetting {
            conversion,
            detail,
            settings,
            sysctl,
        } = converted;
        for (key, value) in settings {
            if self.settings.iter().all(|(known, _)| *known != key) {
                self.settings.push((key, value));
            }
        }
        self.sysctls.extend(sysctl);
        self.lines.push(Line {
            setting: setting.to_owned(),
            value,
            conversion,
            detail: detail.into_owned(),
        });
    }

    /// The text of agent.toml.
    pub(super) fn agent_toml(&self) -> String {
        let mut text = format!(
            "{HEADER}# In a pod this uses its service account; elsewhere name a kubeconfig, as in "
        );
        text += "\"kube:/etc/contiv/kubeconfig\".\nstore = \"kube:\"\n";
        for (key, value) in &self.settings {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{key} = {value}");
        }
        text + &self.sysctls_comment()
    }

    /// Values of the Helm chart, which sets the node's name itself.
    pub(super) fn chart_values(&self) -> String {
        let mut text = format!("{HEADER}agent:\n  config:\n    store: \"kube:\"\n");
        for (key, value) in self.settings.iter().filter(|(key, _)| *key != "node-name") {
            // Strings, numbers, booleans and lists in TOML's notation are valid YAML too.
            let _ = writeln!(text, "    {key}: {value}");
        }
        text + &self.sysctls_comment()
    }

    /// A comment that lists the sysctls of kube-proxy.
    fn sysctls_comment(&self) -> String {
        if self.sysctls.is_empty() {
            return String::new();
        }
        let lines: Vec<String> = self
            .sysctls
            .iter()
            .map(|sysctl| format!("#   {sysctl}\n"))
            .collect();
        let lines = lines.concat();
        format!(
            "\n# kube-proxy sets these sysctls, and contiv does not. To keep them across reboots, put them into /etc/sysctl.d:\n{lines}"
        )
    }
}

const HEADER: &str = "# Written by `contiv migrate` from kube-proxy's configuration. All settings: docs/users/configuration.md\n\n";

/// Converts a configuration.
pub(super) fn migrate(configuration: &Value) -> Migration {
    let facts = KubeProxyFacts::of(configuration);
    let mut migration = Migration::default();
    let mut leaves = Vec::new();
    collect_leaves("", configuration, &mut leaves);
    for (path, value) in leaves {
        let converted = sections::convert(&path, value, &facts);
        migration.add(&path, Some(text_of(value)), converted);
    }
    for (setting, converted) in sections::defaults(&facts) {
        migration.add(setting, None, converted);
    }
    migration
}

/// All values with their paths, as in `conntrack.min`. Empty values count as not set.
fn collect_leaves<'a>(path: &str, value: &'a Value, leaves: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                if path.is_empty() && (key == "apiVersion" || key == "kind") {
                    continue;
                }
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                collect_leaves(&path, member, leaves);
            }
        }
        _ if facts::is_unset(value) => {}
        _ => leaves.push((path.to_owned(), value)),
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text_of).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}
