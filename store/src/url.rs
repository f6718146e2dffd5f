//! Store URLs: which store, and where.

mod kube_address;
mod scope;

use std::{fmt, path::PathBuf, str::FromStr};

use thiserror::Error;

pub use kube_address::KubeAddress;
pub use scope::AgentScope;

/// The kind and the address of a store. Parsed from and printed as a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// `dir:PATH[?links=anywhere]`: a folder of manifests.
    Dir {
        /// The folder.
        path: PathBuf,
        /// The allowed targets of symbolic links in it.
        links: Links,
    },
    /// `etcd://HOST:PORT[,HOST:PORT…][?pods=all][&nodes=all]`, or `etcds://…` with TLS.
    Etcd {
        /// Whether the connections use TLS.
        tls: bool,
        /// The members as `HOST:PORT`, at least one.
        endpoints: Vec<String>,
        /// What an agent reads.
        scope: AgentScope,
    },
    /// `kube:[PATH][?context=NAME][&pods=all][&nodes=all]`: a Kubernetes API server.
    Kube(KubeAddress),
}

/// The allowed targets of symbolic links in a folder of manifests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Links {
    /// Within the folder, hidden or not, like the links of a mounted `ConfigMap`.
    #[default]
    Inside,
    /// Anywhere.
    Anywhere,
}

/// Why a text is not a store URL.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("store URL {url:?}: {problem}")]
pub struct UrlError {
    /// The text.
    pub url: String,
    /// Why it is invalid, and what would be valid.
    pub problem: String,
}

impl FromStr for StoreUrl {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<Self, Self::Err> {
        let error = |problem: String| UrlError {
            url: without_password(url),
            problem,
        };
        if let Some(path) = url.strip_prefix("dir:") {
            return dir(path).map_err(error);
        }
        if let Some(address) = url.strip_prefix("kube:") {
            return KubeAddress::parse(address).map(Self::Kube).map_err(error);
        }
        let (tls, members) = match url.split_once("://") {
            Some(("etcd", members)) => (false, members),
            Some(("etcds", members)) => (true, members),
            _ => {
                let forms = "expected dir:PATH, kube:PATH, etcd://HOST:PORT or etcds://HOST:PORT";
                return Err(error(forms.to_owned()));
            }
        };
        if members.contains('@') {
            return Err(error(
                "user and password have no place in the URL".to_owned(),
            ));
        }
        let (members, query) = members.split_once('?').unwrap_or((members, ""));
        let scope = agent_scope(query).map_err(error)?;
        let endpoints = members
            .split(',')
            .map(endpoint)
            .collect::<Result<_, _>>()
            .map_err(error)?;
        Ok(Self::Etcd {
            tls,
            endpoints,
            scope,
        })
    }
}

impl StoreUrl {
    /// The same store, for a process in any working directory.
    #[must_use]
    pub fn absolute(&self) -> Self {
        match self {
            Self::Dir { path, links } => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                Self::Dir {
                    path,
                    links: *links,
                }
            }
            other => other.clone(),
        }
    }
}

/// A folder, and the options for reading it.
fn dir(text: &str) -> Result<StoreUrl, String> {
    let (path, links) = match text.rsplit_once('?') {
        None => (text, Links::Inside),
        Some((path, "links=inside")) => (path, Links::Inside),
        Some((path, "links=anywhere")) => (path, Links::Anywhere),
        Some((_, query)) => {
            return Err(format!(
                "{query:?} is neither links=inside nor links=anywhere"
            ));
        }
    };
    if path.is_empty() {
        return Err("the path is missing, as in dir:/etc/contiv/manifests".to_owned());
    }
    Ok(StoreUrl::Dir {
        path: PathBuf::from(path),
        links,
    })
}

/// A text that was meant as a URL, without what stands before an `@`: it may be a password, and errors are logged.
pub fn without_password(url: &str) -> String {
    // A password may hold anything, also commas and slashes.
    let Some((before, host)) = url.rsplit_once('@') else {
        return url.to_owned();
    };
    let scheme = before
        .split_once("://")
        .map_or_else(String::new, |(scheme, _)| format!("{scheme}://"));
    format!("{scheme}…@{host}")
}

/// The parameters of an etcd.
fn agent_scope(query: &str) -> Result<AgentScope, String> {
    let mut scope = AgentScope::default();
    for pair in scope::pairs(query) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !scope.read(name, value) {
            return Err(format!("{pair:?} is none of {}", AgentScope::FORMS));
        }
    }
    Ok(scope)
}

/// One member: host and port, nothing else.
fn endpoint(member: &str) -> Result<String, String> {
    if member.contains(['/', '?', '#']) {
        return Err(format!("{member:?} holds more than HOST:PORT"));
    }
    let Some((host, port)) = member.rsplit_once(':') else {
        return Err(format!(
            "the port of {member:?} is missing, as in 127.0.0.1:2379"
        ));
    };
    let bracketed = host.starts_with('[') && host.ends_with(']');
    if host.is_empty() || host.contains(char::is_whitespace) || (host.contains(':') && !bracketed) {
        return Err(format!(
            "the host of {member:?} is not a name, IPv4 address or [IPv6 address]"
        ));
    }
    if !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err(format!(
            "the port of {member:?} is not a number from 1 to 65535"
        ));
    }
    Ok(member.to_owned())
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dir {
                path,
                links: Links::Inside,
            } => write!(f, "dir:{}", path.display()),
            Self::Dir {
                path,
                links: Links::Anywhere,
            } => write!(f, "dir:{}?links=anywhere", path.display()),
            Self::Etcd {
                tls,
                endpoints,
                scope,
            } => {
                let scheme = if *tls { "etcds" } else { "etcd" };
                write!(f, "{scheme}://{}", endpoints.join(","))?;
                scope::write_query(f, scope.parameters())
            }
            Self::Kube(address) => address.fmt(f),
        }
    }
}

impl StoreUrl {
    /// Whether both name the same store. One member is enough to know an etcd: their order means nothing, members come and go,
    /// and connections are changed to TLS.
    pub fn names_the_store_of(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Etcd { endpoints, .. },
                Self::Etcd {
                    endpoints: others, ..
                },
            ) => endpoints.iter().any(|member| others.contains(member)),
            // The option `links` changes how a folder is read, not which one it is.
            (Self::Dir { path, .. }, Self::Dir { path: other, .. }) => path == other,
            _ => self == other,
        }
    }
}

/// Whether two texts are URLs of the same store.
#[cfg(feature = "mirror")]
pub(crate) fn names_the_same_store(one: &str, other: &str) -> bool {
    let urls = one.parse::<StoreUrl>().ok().zip(other.parse().ok());
    urls.map_or(one == other, |(one, other)| one.names_the_store_of(&other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_url_is_read_and_printed_as_it_was() {
        for url in [
            "dir:/etc/contiv",
            "dir:manifests",
            "dir:manifests?links=anywhere",
            "etcd://10.0.0.1:2379",
            "etcd://10.0.0.1:2379?pods=all",
            "etcds://a:1,b:2?pods=all&nodes=all",
            "etcds://a:1,b.c:65535,[::1]:2379",
            "kube:",
            "kube:/etc/kubeconfig",
            "kube:?pods=all",
            "kube:?nodes=all",
            "kube:/etc/kubeconfig?context=prod&pods=all&nodes=all",
        ] {
            assert_eq!(url.parse::<StoreUrl>().unwrap().to_string(), url);
        }
    }

    #[test]
    fn folder_is_same_store_wherever_links_may_lead() {
        let [inside, anywhere, other] = ["dir:/a", "dir:/a?links=anywhere", "dir:/b"]
            .map(|url| url.parse::<StoreUrl>().unwrap());
        assert!(inside.names_the_store_of(&anywhere) && !inside.names_the_store_of(&other));
    }

    #[test]
    fn url_error_is_named() {
        for (url, problem) in [
            ("dir:", "path is missing"),
            ("dir:?links=anywhere", "path is missing"),
            ("dir:/etc/contiv?link=anywhere", "links=inside"),
            ("/etc/contiv", "expected dir:PATH"),
            ("http://a:1", "expected dir:PATH"),
            ("etcd://", "port of \"\" is missing"),
            ("etcd://a", "port of \"a\" is missing"),
            (
                "etcd://a:1?pods=some",
                "\"pods=some\" is none of pods=all, pods=none, nodes=all and nodes=own",
            ),
            ("etcd://a:1?pods", "\"pods\" is none of pods=all"),
            ("etcd://a:1,", "port of \"\" is missing"),
            ("etcd://a:0", "not a number from 1"),
            ("etcd://a:70000", "not a number from 1"),
            ("etcd://::1:2379", "[IPv6 address]"),
            ("etcd://:2379", "host of"),
            ("etcd://root:secret@a:1", "user and password"),
            ("etcd://a:1,root:sec,secret@b:1", "user and password"),
            ("http://root:secret@a:1", "expected dir:PATH"),
            ("root:secret@a:1", "expected dir:PATH"),
            ("kube:?context=", "none of context=NAME"),
            ("kube:/etc/kubeconfig?pods=some", "pods=none"),
            ("kube:?nodes=some", "nodes=own"),
            ("etcd://a:1/folder", "more than HOST:PORT"),
        ] {
            let error = url.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(error.contains(problem), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
