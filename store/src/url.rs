//! Store URLs: which store, and where.

use std::{fmt, path::PathBuf, str::FromStr, sync::Arc};

use thiserror::Error;

use crate::{
    Store, StoreError,
    dir::DirStore,
    etcd::{EtcdAccess, EtcdStore},
};

/// Which store to use, and where it is. Reads and prints as a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// `dir:PATH`: a folder of manifests.
    Dir(PathBuf),
    /// `etcd://HOST:PORT[,HOST:PORT…]`, or `etcds://…` with TLS.
    Etcd {
        /// Whether the connections use TLS.
        tls: bool,
        /// The members as `HOST:PORT`, at least one.
        endpoints: Vec<String>,
    },
}

/// Why a text is not a store URL.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("store URL {url:?}: {problem}")]
pub struct UrlError {
    /// The text.
    pub url: String,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

impl FromStr for StoreUrl {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<Self, Self::Err> {
        let error = |problem: String| UrlError { url: url.to_owned(), problem };
        if let Some(path) = url.strip_prefix("dir:") {
            if path.is_empty() {
                return Err(error("the path is missing, as in dir:/etc/contiv/manifests".to_owned()));
            }
            return Ok(Self::Dir(PathBuf::from(path)));
        }
        let (tls, members) = match url.split_once("://") {
            Some(("etcd", members)) => (false, members),
            Some(("etcds", members)) => (true, members),
            _ => return Err(error("expected dir:PATH, etcd://HOST:PORT or etcds://HOST:PORT".to_owned())),
        };
        let endpoints = members.split(',').map(endpoint).collect::<Result<_, _>>().map_err(error)?;
        Ok(Self::Etcd { tls, endpoints })
    }
}

/// One member: host and port, nothing else.
fn endpoint(member: &str) -> Result<String, String> {
    if member.contains('@') {
        return Err("user and password have no place in the URL".to_owned());
    }
    if member.contains(['/', '?', '#']) {
        return Err(format!("{member:?} holds more than HOST:PORT"));
    }
    let Some((host, port)) = member.rsplit_once(':') else {
        return Err(format!("the port of {member:?} is missing, as in 127.0.0.1:2379"));
    };
    let bracketed = host.starts_with('[') && host.ends_with(']');
    if host.is_empty() || host.contains(char::is_whitespace) || (host.contains(':') && !bracketed) {
        return Err(format!("the host of {member:?} is no name, IPv4 address or [IPv6 address]"));
    }
    if !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err(format!("the port of {member:?} is no number from 1 to 65535"));
    }
    Ok(member.to_owned())
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dir(path) => write!(f, "dir:{}", path.display()),
            Self::Etcd { tls, endpoints } => {
                let scheme = if *tls { "etcds" } else { "etcd" };
                write!(f, "{scheme}://{}", endpoints.join(","))
            }
        }
    }
}

/// Opens the store that `url` names; if it is an etcd, with `access`. The URL says whether with TLS.
///
/// A folder is read at once. With etcd nothing is sent yet: whether it can be reached, and whether the files of `access`
/// can be used, shows in the first request.
///
/// # Errors
/// When the folder cannot be read.
pub async fn open(url: &StoreUrl, access: EtcdAccess) -> Result<Arc<dyn Store>, StoreError> {
    Ok(match url {
        StoreUrl::Dir(path) => Arc::new(DirStore::open(path).await?),
        StoreUrl::Etcd { tls, endpoints } => {
            Arc::new(EtcdStore::new(endpoints, EtcdAccess { tls: *tls, ..access })?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_url_is_read_and_printed_as_it_was() {
        for url in
            ["dir:/etc/contiv", "dir:manifests", "etcd://10.0.0.1:2379", "etcds://a:1,b.c:65535,[::1]:2379"]
        {
            assert_eq!(url.parse::<StoreUrl>().unwrap().to_string(), url);
        }
    }

    #[test]
    fn what_is_wrong_with_a_url_is_named() {
        for (url, problem) in [
            ("dir:", "path is missing"),
            ("/etc/contiv", "expected dir:PATH"),
            ("http://a:1", "expected dir:PATH"),
            ("etcd://", "port of \"\" is missing"),
            ("etcd://a", "port of \"a\" is missing"),
            ("etcd://a:1,", "port of \"\" is missing"),
            ("etcd://a:0", "no number from 1"),
            ("etcd://a:70000", "no number from 1"),
            ("etcd://::1:2379", "[IPv6 address]"),
            ("etcd://:2379", "host of"),
            ("etcd://root:secret@a:1", "user and password"),
            ("etcd://a:1/folder", "more than HOST:PORT"),
        ] {
            let error = url.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(error.contains(problem), "{url}: {error}");
        }
    }
}
