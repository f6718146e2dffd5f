//! What becomes of each setting of kube-proxy. Source: `KubeProxyConfiguration` v1alpha1 of Kubernetes 1.36.

mod answer;
mod conntrack;
mod facts;
mod sections;

use std::fmt::Write as _;

use serde_json::Value;

pub(super) use answer::Conversion;
use answer::{Answer, Setting};
use facts::Facts;

/// A setting of kube-proxy, and what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// Its path, as in `conntrack.min`.
    pub(super) setting: String,
    /// None: it is not set, and kube-proxy's default matters.
    pub(super) value: Option<String>,
    pub(super) conversion: Conversion,
    pub(super) detail: String,
}

impl Line {
    /// A default is nobody's decision, so it asks for none.
    pub(super) fn needs_attention(&self) -> bool {
        self.value.is_some() && matches!(self.conversion, Conversion::ByHand | Conversion::Unknown)
    }
}

/// What becomes of a whole configuration.
#[derive(Debug, Default)]
pub(super) struct Migration {
    pub(super) lines: Vec<Line>,
    settings: Vec<Setting>,
    sysctls: Vec<String>,
}

impl Migration {
    fn add(&mut self, setting: &str, value: Option<String>, answer: Answer) {
        let Answer { conversion, detail, settings, sysctl } = answer;
        for (key, value) in settings {
            if self.settings.iter().all(|(known, _)| *known != key) {
                self.settings.push((key, value));
            }
        }
        self.sysctls.extend(sysctl);
        self.lines.push(Line { setting: setting.to_owned(), value, conversion, detail: detail.into_owned() });
    }

    /// agent.toml.
    pub(super) fn agent_toml(&self) -> String {
        let mut text =
            format!("{HEADER}# In a pod by its service account; elsewhere name a kubeconfig, as in ");
        text += "\"kube:/etc/contiv/kubeconfig\".\nstore = \"kube:\"\n";
        for (key, value) in &self.settings {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{key} = {value}");
        }
        text + &self.sysctls_to_keep()
    }

    /// Values of the Helm chart, which sets the node's name itself.
    pub(super) fn chart_values(&self) -> String {
        let mut text = format!("{HEADER}agent:\n  config:\n    store: \"kube:\"\n");
        for (key, value) in self.settings.iter().filter(|(key, _)| *key != "node-name") {
            // What TOML writes of texts, numbers, switches and lists is YAML too.
            let _ = writeln!(text, "    {key}: {value}");
        }
        text + &self.sysctls_to_keep()
    }

    /// A comment.
    fn sysctls_to_keep(&self) -> String {
        if self.sysctls.is_empty() {
            return String::new();
        }
        let lines: Vec<String> = self.sysctls.iter().map(|sysctl| format!("#   {sysctl}\n")).collect();
        let lines = lines.concat();
        format!(
            "\n# kube-proxy sets these, and contiv does not. To keep them over a boot, put them into /etc/sysctl.d:\n{lines}"
        )
    }
}

const HEADER: &str =
    "# By `contiv migrate` from kube-proxy's configuration. All settings: docs/configuration.md\n\n";

/// Says what becomes of a configuration.
pub(super) fn migrate(configuration: &Value) -> Migration {
    let facts = Facts::of(configuration);
    let mut migration = Migration::default();
    let mut leaves = Vec::new();
    collect_leaves("", configuration, &mut leaves);
    for (path, value) in leaves {
        let answer = sections::convert(&path, value, &facts);
        migration.add(&path, Some(text_of(value)), answer);
    }
    for (setting, answer) in sections::defaults(&facts) {
        migration.add(setting, None, answer);
    }
    migration
}

/// All values with their paths, as in `conntrack.min`. What is empty is not set.
fn collect_leaves<'a>(path: &str, value: &'a Value, leaves: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                if path.is_empty() && (key == "apiVersion" || key == "kind") {
                    continue;
                }
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
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
