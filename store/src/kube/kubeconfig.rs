//! Reads kubeconfig files.

use std::{env, path::PathBuf};

use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use super::{KubeAddress, failure::chain};
use crate::FileVersions;

/// Set within a pod.
const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";

const NOT_A_KUBECONFIG: &str = "this is not YAML, or not what a kubeconfig has here";

/// The cluster and the user of a kubeconfig, or of a pod's service account.
pub(super) struct Access {
    pub(super) config: Config,
    /// The files and the user, for errors.
    pub(super) name: String,
    /// The kubeconfig, and the certificates and keys that it names, as they were before they were read.
    pub(super) versions: FileVersions,
}

/// Reads the configuration of the client at this address.
///
/// # Errors
/// The files and the field that cannot be used.
pub(super) async fn access(address: &KubeAddress) -> Result<Access, String> {
    let is_in_cluster = || env::var_os(IN_CLUSTER).is_some_and(|it| !it.is_empty());
    if address.kubeconfig.is_none() && address.context.is_none() && is_in_cluster() {
        let config = Config::incluster().map_err(|error| chain(&error))?;
        let versions = FileVersions::read(&config.root_cert_file);
        return Ok(Access {
            config,
            name: "the service account of this pod".to_owned(),
            versions,
        });
    }
    let files = files(address)?;
    let mut versions = FileVersions::read(&files);
    let read = files
        .iter()
        .try_fold(Kubeconfig::default(), |merged, file| {
            let named = |error: &KubeconfigError| match error {
                // It names the file itself.
                KubeconfigError::ReadConfig(..) => chain(error),
                // Neither the lines around it nor a value: they may be a token or a password.
                KubeconfigError::Parse(error) => match error.location() {
                    Some(at) => {
                        format!(
                            "{}:{}:{}: {NOT_A_KUBECONFIG}",
                            file.display(),
                            at.line(),
                            at.column()
                        )
                    }
                    None => format!("{}: {NOT_A_KUBECONFIG}", file.display()),
                },
                _ => format!("{}: {}", file.display(), chain(error)),
            };
            let read = Kubeconfig::read_from(file).map_err(|error| named(&error))?;
            merged.merge(read).map_err(|error| named(&error))
        })?;
    versions.add(certificates(&read));
    let options = KubeConfigOptions {
        context: address.context.clone(),
        ..KubeConfigOptions::default()
    };
    let config = Config::from_custom_kubeconfig(read.clone(), &options).await;
    let names: Vec<String> = files
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    let names = names.join(", ");
    let config = config.map_err(|error| format!("{names}: {}", field(&error, &read, address)))?;
    let name = match user(&read, address) {
        Some(user) => format!("{names}: the user {user:?}"),
        None => names,
    };
    Ok(Access {
        config,
        name,
        versions,
    })
}

/// The files that a kubeconfig names, without those of tokens, which are read for each request.
fn certificates(read: &Kubeconfig) -> Vec<&String> {
    let clusters = read
        .clusters
        .iter()
        .filter_map(|cluster| cluster.cluster.as_ref());
    let users = read
        .auth_infos
        .iter()
        .filter_map(|user| user.auth_info.as_ref());
    let authorities = clusters.filter_map(|cluster| cluster.certificate_authority.as_ref());
    authorities
        .chain(
            users
                .flat_map(|user| [&user.client_certificate, &user.client_key])
                .flatten(),
        )
        .collect()
}

/// The name of the chosen context's user.
fn user<'a>(read: &'a Kubeconfig, address: &'a KubeAddress) -> Option<&'a str> {
    let chosen = address.context.as_ref().or(read.current_context.as_ref())?;
    let context = read
        .contexts
        .iter()
        .find(|context| context.name == *chosen)?
        .context
        .as_ref()?;
    context.user.as_deref()
}

/// The files, in the order in which they count.
fn files(address: &KubeAddress) -> Result<Vec<PathBuf>, String> {
    if let Some(file) = &address.kubeconfig {
        return Ok(vec![file.clone()]);
    }
    let named = env::var_os("KUBECONFIG").unwrap_or_default();
    let named: Vec<PathBuf> = env::split_paths(&named)
        .filter(|path| !path.as_os_str().is_empty())
        .collect();
    // As kubectl: of several files those count that are there.
    let there: Vec<PathBuf> = named.iter().filter(|path| path.exists()).cloned().collect();
    if !named.is_empty() {
        return Ok(if there.is_empty() { named } else { there });
    }
    let home = env::home_dir().ok_or("no $KUBECONFIG, and no home folder with .kube/config")?;
    Ok(vec![home.join(".kube/config")])
}

/// The field that is wrong, and what would be right.
fn field(error: &KubeconfigError, read: &Kubeconfig, address: &KubeAddress) -> String {
    let contexts: Vec<&str> = read
        .contexts
        .iter()
        .map(|context| context.name.as_str())
        .collect();
    let contexts = if contexts.is_empty() {
        "none".to_owned()
    } else {
        contexts.join(", ")
    };
    let chosen = address.context.as_ref().or(read.current_context.as_ref());
    let context = chosen.map(String::as_str).unwrap_or_default();
    match error {
        KubeconfigError::CurrentContextNotSet => {
            format!("current-context is not set; name a context of {contexts}")
        }
        KubeconfigError::LoadContext(name) if address.context.is_none() => {
            format!("current-context is {name:?}, which contexts does not have; it has {contexts}")
        }
        KubeconfigError::LoadContext(name) => {
            format!("contexts does not have {name:?}; it has {contexts}")
        }
        KubeconfigError::LoadClusterOfContext(name) => {
            format!("clusters does not have {name:?}, which the context {context:?} names")
        }
        KubeconfigError::MissingClusterUrl => {
            format!("the cluster of the context {context:?} has no server")
        }
        error => chain(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    async fn error(text: &str, context: Option<&str>) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        fs::write(&path, text).unwrap();
        let context = context.map(str::to_owned);
        let address = KubeAddress {
            kubeconfig: Some(path.clone()),
            context,
            ..KubeAddress::default()
        };
        let error = access(&address)
            .await
            .err()
            .unwrap_or_else(|| panic!("it is taken: {text}"));
        error.replace(&path.display().to_string(), "FILE")
    }

    #[tokio::test]
    async fn kubeconfig_that_cannot_be_used_names_file_and_field() {
        let clusters = "clusters: [{name: it, cluster: {server: 'https://10.0.0.1:6443'}}, {name: bare, cluster: {}}]
contexts: [{name: a, context: {cluster: it}}, {name: b, context: {cluster: gone}}, {name: c, context: {cluster: bare}}]
";
        let with = |current: &str| format!("{clusters}current-context: {current}\n");
        for (text, context, expected) in [
            (
                clusters.to_owned(),
                None,
                "FILE: current-context is not set; name a context of a, b, c",
            ),
            (
                with("x"),
                None,
                "FILE: current-context is \"x\", which contexts does not have; it has a, b, c",
            ),
            (
                with("a"),
                Some("y"),
                "FILE: contexts does not have \"y\"; it has a, b, c",
            ),
            (
                with("b"),
                None,
                "FILE: clusters does not have \"gone\", which the context \"b\" names",
            ),
            (
                with("a"),
                Some("c"),
                "FILE: the cluster of the context \"c\" has no server",
            ),
        ] {
            assert_eq!(error(&text, context).await, expected);
        }
        let broken = error("clusters: 7\n", None).await;
        assert!(broken.starts_with("FILE:1:"), "{broken}");
    }

    #[tokio::test]
    async fn unreadable_kubeconfig_is_not_quoted_in_errors() {
        for (text, line) in [
            (
                "users:\n- name: a\n  user:\n    token: S3CRET\n    exec: 7\n",
                5,
            ),
            ("users:\n- name: a\n  user: S3CRET\n", 3),
            (
                "users:\n- name: a\n  user:\n    token: S3CRET\n   password: [\n",
                5,
            ),
        ] {
            let error = error(text, None).await;
            assert!(error.starts_with(&format!("FILE:{line}:")), "{error}");
            assert!(!error.contains("S3CRET"), "{error}");
        }
    }

    #[tokio::test]
    async fn kubeconfig_that_is_missing_is_named() {
        let address = KubeAddress {
            kubeconfig: Some("/nonexistent/config".into()),
            ..KubeAddress::default()
        };
        let error = access(&address).await.err().unwrap_or_default();
        assert!(
            error.contains("/nonexistent/config") && error.contains("No such file"),
            "{error}"
        );
    }
}
