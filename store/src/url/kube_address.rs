//! The address of the API server and the client's identity: a kubeconfig, or the service account of a pod.

use std::{fmt, path::PathBuf};

use super::{
    AgentScope,
    scope::{pairs, write_query},
};

/// How to find the API server, as in the URL `kube:[PATH][?context=NAME][&pods=all][&nodes=all]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KubeAddress {
    /// The kubeconfig. None: the service account within a pod, otherwise `$KUBECONFIG` or `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig. None: its current one.
    pub context: Option<String>,
    /// What an agent reads.
    pub scope: AgentScope,
}

impl KubeAddress {
    /// Parses the part after `kube:` in a URL.
    ///
    /// # Errors
    /// What is wrong with it, and what would be valid.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let mut address = Self {
            kubeconfig: (!path.is_empty()).then(|| PathBuf::from(path)),
            ..Self::default()
        };
        for pair in pairs(query) {
            match pair.split_once('=') {
                Some(("context", name)) if !name.is_empty() => {
                    address.context = Some(name.to_owned());
                }
                Some((name, value)) if address.scope.read(name, value) => {}
                _ => {
                    return Err(format!(
                        "{pair:?} is none of context=NAME, {}",
                        AgentScope::FORMS
                    ));
                }
            }
        }
        Ok(address)
    }
}

impl fmt::Display for KubeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("kube:")?;
        if let Some(path) = &self.kubeconfig {
            write!(f, "{}", path.display())?;
        }
        let context = self.context.as_ref().map(|name| format!("context={name}"));
        let scope = self.scope.parameters().map(str::to_owned);
        write_query(f, context.into_iter().chain(scope))
    }
}
