//! The address of the API server and the client's identity: a kubeconfig, or the service account of a pod.

use std::{fmt, path::PathBuf};

/// How to find the API server, as in the URL `kube:[PATH][?context=NAME][&pods=all][&nodes=all]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KubeAddress {
    /// The kubeconfig. None: the service account within a pod, otherwise `$KUBECONFIG` or `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig. None: its current one.
    pub context: Option<String>,
    /// Whether an agent reads the pods of the cluster too. Only weights in their annotations need that.
    pub pods: bool,
    /// Whether an agent reads all nodes, and not only its own. Only what concerns the whole cluster needs that, such as
    /// masquerading what leaves it.
    pub nodes: bool,
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
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("context", name)) if !name.is_empty() => {
                    address.context = Some(name.to_owned());
                }
                Some(("pods", "all")) => address.pods = true,
                Some(("pods", "none")) => address.pods = false,
                Some(("nodes", "all")) => address.nodes = true,
                Some(("nodes", "own")) => address.nodes = false,
                _ => {
                    return Err(format!(
                        "{pair:?} is none of context=NAME, pods=all, pods=none, nodes=all and nodes=own"
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
        let pods = self.pods.then(|| "pods=all".to_owned());
        let nodes = self.nodes.then(|| "nodes=all".to_owned());
        for (i, pair) in context.into_iter().chain(pods).chain(nodes).enumerate() {
            write!(f, "{}{pair}", if i == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}
