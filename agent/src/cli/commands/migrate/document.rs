//! Finds the `KubeProxyConfiguration` in a file: by itself, or in a `ConfigMap`, where kubeadm and most installers keep it.

use std::{fs, io, path::Path};

use anyhow::{Context, anyhow, bail};
use serde_json::Value;

pub(super) const KIND: &str = "KubeProxyConfiguration";
const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";

/// Reads a file, or standard input for `-`.
pub(super) fn read(file: &Path) -> anyhow::Result<Value> {
    let text = if file == Path::new("-") {
        io::read_to_string(io::stdin())
    } else {
        fs::read_to_string(file)
    };
    let text = text.with_context(|| format!("failed to read {}", file.display()))?;
    find(&text).with_context(|| file.display().to_string())
}

/// The one configuration in a text of YAML or JSON.
pub(super) fn find(text: &str) -> anyhow::Result<Value> {
    let mut found = Vec::new();
    for document in serde_saphyr::from_multiple::<Value>(text)? {
        collect(document, &mut found);
    }
    let configuration = found
        .pop()
        .ok_or_else(|| anyhow!("there is no {KIND} in it, nor in a ConfigMap"))?;
    if !found.is_empty() {
        bail!(
            "there are {} of {KIND} in it; one is needed",
            found.len() + 1
        );
    }
    match configuration["apiVersion"].as_str() {
        Some(API_VERSION) => Ok(configuration),
        other => bail!(
            "{KIND} of {}; only {API_VERSION} is known",
            other.unwrap_or("no apiVersion")
        ),
    }
}

fn collect(document: Value, found: &mut Vec<Value>) {
    match document["kind"].as_str() {
        Some(KIND) => found.push(document),
        Some("ConfigMap") => {
            let data = document["data"].as_object();
            let texts = data
                .into_iter()
                .flat_map(|data| data.values())
                .filter_map(Value::as_str);
            // The ConfigMap may contain a kubeconfig too, or anything else.
            let parsed = texts
                .filter_map(|text| serde_saphyr::from_multiple::<Value>(text).ok())
                .flatten();
            found.extend(parsed.filter(|inner| inner["kind"] == KIND));
        }
        Some(_) if document["items"].is_array() => {
            for item in document["items"].as_array().cloned().unwrap_or_default() {
                collect(item, found);
            }
        }
        _ => {}
    }
}
