//! Access to etcd: the flags of commands, and their validation.

use std::path::PathBuf;

use clap::Args;
use contiv_store::{StoreUrl, etcd::EtcdAccess};

use super::text;

/// For commands that open a store. Names and environment are those of the agent's configuration.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Access to etcd")]
pub struct EtcdFlags {
    /// CA certificates (PEM) of the members of an etcds:// store [default: the system's]
    #[arg(long = "etcd-ca-file", env = "CONTIV_ETCD_CA_FILE", value_name = "FILE", value_parser = text::path())]
    ca_file: Option<PathBuf>,

    /// Client certificate (PEM), for an etcds:// store that requires one
    #[arg(long = "etcd-cert-file", env = "CONTIV_ETCD_CERT_FILE", value_name = "FILE", value_parser = text::path())]
    cert_file: Option<PathBuf>,

    /// Private key (PEM) of that certificate
    #[arg(long = "etcd-key-file", env = "CONTIV_ETCD_KEY_FILE", value_name = "FILE", value_parser = text::path())]
    key_file: Option<PathBuf>,

    /// User name for etcd
    #[arg(long = "etcd-user", env = "CONTIV_ETCD_USER", value_name = "NAME")]
    user: Option<String>,

    /// File with the password of that user
    #[arg(long = "etcd-password-file", env = "CONTIV_ETCD_PASSWORD_FILE", value_name = "FILE", value_parser = text::path())]
    password_file: Option<PathBuf>,
}

impl EtcdFlags {
    /// The access to this store.
    ///
    /// # Errors
    /// Contradictions, a line each.
    pub fn access(&self, store: &StoreUrl) -> Result<EtcdAccess, Vec<String>> {
        self.over(store, access(store, [&PathBuf::new(); 4], ""))
    }

    /// The access to this store, with `configured` for everything that these flags do not set.
    ///
    /// # Errors
    /// Contradictions, a line each.
    pub fn over(
        &self,
        store: &StoreUrl,
        configured: EtcdAccess,
    ) -> Result<EtcdAccess, Vec<String>> {
        // An empty one unsets the configured one.
        let file = |path: &Option<PathBuf>, configured| match path {
            Some(path) => Some(path.clone()).filter(|path| !path.as_os_str().is_empty()),
            None => configured,
        };
        let access = EtcdAccess {
            tls: configured.tls,
            ca_file: file(&self.ca_file, configured.ca_file),
            cert_file: file(&self.cert_file, configured.cert_file),
            key_file: file(&self.key_file, configured.key_file),
            user: self
                .user
                .clone()
                .or(configured.user)
                .filter(|user| !user.is_empty()),
            password_file: file(&self.password_file, configured.password_file),
        };
        let problems = problems(store, &access);
        if problems.is_empty() {
            Ok(access)
        } else {
            Err(problems)
        }
    }
}

/// The access to etcd. Empty means none; `files` are the authority's certificates, this client's certificate, its key, and the
/// password.
pub(super) fn access(store: &StoreUrl, files: [&PathBuf; 4], user: &str) -> EtcdAccess {
    let file = |path: &PathBuf| (!path.as_os_str().is_empty()).then(|| path.clone());
    let [ca_file, cert_file, key_file, password_file] = files.map(file);
    EtcdAccess {
        tls: matches!(store, StoreUrl::Etcd { tls: true, .. }),
        ca_file,
        cert_file,
        key_file,
        user: (!user.is_empty()).then(|| user.to_owned()),
        password_file,
    }
}

/// Contradictions. For a folder as the store the settings are ignored.
pub(super) fn problems(store: &StoreUrl, access: &EtcdAccess) -> Vec<String> {
    let StoreUrl::Etcd { tls, .. } = store else {
        return Vec::new();
    };
    let files = [
        ("etcd-ca-file", &access.ca_file),
        ("etcd-cert-file", &access.cert_file),
        ("etcd-key-file", &access.key_file),
    ];
    let mut problems = Vec::new();
    if !tls {
        for (key, _) in files.iter().filter(|(_, file)| file.is_some()) {
            problems.push(format!(
                "{key}: the store {store} does not use TLS; write etcds:// for one that does"
            ));
        }
    }
    let pairs = [
        (
            files[1].0,
            files[1].1.is_some(),
            files[2].0,
            files[2].1.is_some(),
        ),
        (
            "etcd-user",
            access.user.is_some(),
            "etcd-password-file",
            access.password_file.is_some(),
        ),
    ];
    for (one, has_one, other, has_other) in pairs {
        if has_one != has_other {
            let (there, missing) = if has_one { (one, other) } else { (other, one) };
            problems.push(format!(
                "{there}: it is of no use without {missing}; set both or none"
            ));
        }
    }
    problems
}
