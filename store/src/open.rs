//! Opens what a store URL names.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use contiv_proto::{Key, Kind, key::ROOT};
use tracing::info;

use crate::{
    Mirror, Store, StoreError,
    dir::{DirOptions, DirStore, LoadSaved},
    etcd::{EtcdAccess, EtcdStore, KeySelection},
    kube::{KINDS, KubeStore, Scope},
    url::{AgentScope, StoreUrl},
};

/// Opens the store that `url` names; if it is an etcd, with `access`. The URL says whether with TLS.
///
/// A folder is read at once. With etcd and Kubernetes nothing is sent yet: whether it can be reached, and whether the files
/// that let this client in can be used, shows in the first request.
///
/// # Errors
/// When the folder cannot be read.
pub async fn open(url: &StoreUrl, access: EtcdAccess) -> Result<Arc<dyn Store>, StoreError> {
    open_scope(url, access, &Scope::cluster(), None).await
}

/// The part of its store that an agent reads.
#[derive(Debug, Clone, Copy)]
pub struct NodeScope<'a> {
    /// The name of its node.
    pub node_name: &'a str,
    /// The value of the label by which services name this proxy. Empty: those without the label are for it.
    pub proxy_name: &'a str,
    /// The folder of the mirror, which is not open yet.
    pub state_dir: &'a Path,
}

/// As [`open`], for the agent of a node: of what etcd or Kubernetes has, only what that agent needs ([`AgentScope`]). Of Kubernetes,
/// also nothing older than what an earlier run saved; and a folder of which something cannot be read asks `recall` for that.
///
/// # Errors
/// As [`open`].
pub async fn open_for_node(
    url: &StoreUrl,
    access: EtcdAccess,
    scope: NodeScope<'_>,
    recall: LoadSaved,
) -> Result<Arc<dyn Store>, StoreError> {
    let address = match url {
        StoreUrl::Kube(address) => address,
        StoreUrl::Dir { .. } => {
            return open_scope(url, access, &Scope::cluster(), Some(recall)).await;
        }
        StoreUrl::Etcd { .. } => return open_as_node(url, access, scope.node_name).await,
    };
    let (folder, source) = (scope.state_dir.to_owned(), url.to_string());
    // It reads a file.
    let reached = tokio::task::spawn_blocking(move || saved_versions(&folder, &source)).await;
    let node = Scope::node(scope.node_name, scope.proxy_name, address);
    Ok(Arc::new(KubeStore::after(
        address.clone(),
        &node,
        reached.unwrap_or_default(),
    )))
}

/// As [`open`], of an etcd only what the agent of a node reads, for a comparison with that agent.
///
/// # Errors
/// As [`open`].
pub async fn open_as_node(
    url: &StoreUrl,
    access: EtcdAccess,
    node_name: &str,
) -> Result<Arc<dyn Store>, StoreError> {
    let StoreUrl::Etcd {
        tls,
        endpoints,
        scope,
    } = url
    else {
        return open(url, access).await;
    };
    let keys = keys_of_node(node_name, *scope);
    let store = open_etcd(*tls, endpoints, access)?;
    Ok(Arc::new(store.with_only(ROOT, keys)))
}

fn open_etcd(tls: bool, endpoints: &[String], access: EtcdAccess) -> Result<EtcdStore, StoreError> {
    EtcdStore::new(endpoints, EtcdAccess { tls, ..access })
}

/// What the agent of a node reads of etcd.
fn keys_of_node(node_name: &str, scope: AgentScope) -> Vec<KeySelection> {
    let own = Key::new(Kind::Node, "", node_name).ok();
    let selection = |kind: Kind| {
        let is_read = match kind {
            Kind::Service
            | Kind::EndpointSlice
            | Kind::Endpoints
            | Kind::ExternalWorkload
            | Kind::VppNode => true,
            Kind::Node => scope.nodes || own.is_some(),
            // An allocation concerns the address of a pod.
            Kind::Pod | Kind::IpAllocation => scope.pods,
            Kind::Namespace => false,
        };
        is_read.then(|| match &own {
            Some(own) if kind == Kind::Node && !scope.nodes => KeySelection::Key(own.to_path()),
            _ => KeySelection::Prefix(Key::prefix(kind)),
        })
    };
    Kind::ALL.into_iter().filter_map(selection).collect()
}

/// The newest version of each type that an earlier run saved of an API server.
fn saved_versions(folder: &Path, source: &str) -> BTreeMap<Kind, i64> {
    let prefixes = KINDS.map(|kind| (Key::prefix(kind), kind));
    let mut newest = BTreeMap::new();
    let read = Mirror::for_each_revision(folder, source, |key, revision| {
        if let Some((_, kind)) = prefixes.iter().find(|(prefix, _)| key.starts_with(prefix)) {
            let version = newest.entry(*kind).or_insert(revision);
            *version = revision.max(*version);
        }
    });
    if let Err(error) = read {
        info!(%error, "the saved versions cannot be read: a first list may be older than they are");
    }
    // An object whose version is not a number was saved with 0.
    newest.retain(|_, version| *version > 0);
    newest
}

async fn open_scope(
    url: &StoreUrl,
    access: EtcdAccess,
    scope: &Scope,
    recall: Option<LoadSaved>,
) -> Result<Arc<dyn Store>, StoreError> {
    Ok(match url {
        StoreUrl::Dir { path, links } => Arc::new(
            DirStore::open_with(
                path,
                DirOptions {
                    links: *links,
                    recall,
                },
            )
            .await?,
        ),
        StoreUrl::Etcd { tls, endpoints, .. } => {
            let store = open_etcd(*tls, endpoints, access)?;
            Arc::new(store.with_parts(Kind::ALL.map(Key::prefix)))
        }
        StoreUrl::Kube(address) => Arc::new(KubeStore::new(address.clone(), scope)),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Entry;

    #[test]
    fn agent_reads_pods_and_other_nodes_only_on_request() {
        let read = |pods, nodes| {
            let selected = keys_of_node("n1", AgentScope { pods, nodes });
            let short = |selection| match selection {
                KeySelection::Key(key) => key[ROOT.len()..].to_owned(),
                KeySelection::Prefix(prefix) => prefix[ROOT.len()..].to_owned() + "*",
            };
            let mut selected: Vec<String> = selected.into_iter().map(short).collect();
            selected.sort();
            selected
        };
        let needed = [
            "allocatedIDs/*",
            "k8s/endpoints/*",
            "k8s/endpointslice/*",
            "k8s/externalworkload/*",
            "k8s/node/n1",
            "k8s/service/*",
        ];
        assert_eq!(read(false, false), needed);
        let with_pods: BTreeSet<String> = read(true, false).into_iter().collect();
        let pods = ["custom-ipam/*", "k8s/pod/*"].map(str::to_owned);
        assert_eq!(
            with_pods,
            needed.map(str::to_owned).into_iter().chain(pods).collect()
        );
        assert_eq!(read(false, true)[4], "k8s/node/*");
    }

    #[test]
    fn saved_versions_are_the_newest_of_each_type() {
        let entry = |kind, name: &str, revision| {
            let key = Key::new(kind, "default", name).unwrap().to_path();
            Ok(Entry {
                key,
                value: "{}".into(),
                create_revision: 0,
                mod_revision: revision,
            })
        };
        let (service, slice) = (Kind::Service, Kind::EndpointSlice);
        let entries = [
            entry(slice, "a", 0),
            entry(service, "a", 7),
            entry(service, "b", 12),
            entry(service, "c", 9),
        ];
        let folder = tempfile::tempdir().unwrap();
        let mut mirror = Mirror::open(folder.path(), "kube:").unwrap().0;
        mirror.replace(1, entries, &BTreeSet::new()).unwrap();
        drop(mirror);
        assert_eq!(
            saved_versions(folder.path(), "kube:"),
            BTreeMap::from([(service, 12)])
        );
        assert_eq!(saved_versions(folder.path(), "kube:other"), BTreeMap::new());
    }
}
