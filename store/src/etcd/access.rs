//! Access to etcd: certificates, a user, a password.

use std::{
    io,
    path::{Path, PathBuf},
};

use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};

use super::failure;
use crate::{FileVersions, StoreError, certificate::version_problem};

/// How to access an etcd that requires more than its address.
///
/// The files are read for each new connection, and a changed certificate makes a new one: no restart is needed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EtcdAccess {
    /// Whether connections use TLS.
    pub tls: bool,
    /// The certificates (PEM) of the authorities that sign members' certificates. None: those the system trusts.
    pub ca_file: Option<PathBuf>,
    /// This client's certificate (PEM), if etcd requires one.
    pub cert_file: Option<PathBuf>,
    /// Its key (PEM).
    pub key_file: Option<PathBuf>,
    /// The user to log in as, if etcd has users.
    pub user: Option<String>,
    /// The user's password; a trailing line feed is ignored.
    pub password_file: Option<PathBuf>,
}

/// User and password. Without `Debug`, so that the password is never printed.
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

impl EtcdAccess {
    /// Adds certificates to the options of a connection.
    pub(super) async fn add_tls(
        &self,
        options: ConnectOptions,
    ) -> Result<ConnectOptions, StoreError> {
        if !self.tls {
            return Ok(options);
        }
        let mut tls = TlsOptions::new();
        tls = match &self.ca_file {
            Some(path) => {
                tls.ca_certificate(Certificate::from_pem(read_pem(path, "CERTIFICATE").await?))
            }
            None => tls.with_native_roots(),
        };
        if let (Some(cert), Some(key)) = (&self.cert_file, &self.key_file) {
            let identity = Identity::from_pem(
                read_pem(cert, "CERTIFICATE").await?,
                read_pem(key, "PRIVATE KEY").await?,
            );
            tls = tls.identity(identity);
        }
        Ok(options.with_tls(tls))
    }

    /// The present versions of the certificates and the key; none without TLS.
    pub(super) fn certificate_versions(&self) -> FileVersions {
        let files = [&self.ca_file, &self.cert_file, &self.key_file]
            .into_iter()
            .flatten();
        FileVersions::read(files.filter(|_| self.tls))
    }

    /// The error for files that TLS cannot use. It names all of them, since the TLS library does not say which one is meant.
    pub(super) fn unusable_files(&self, error: &etcd_client::Error) -> StoreError {
        let words = failure::words(error);
        if let (Some(path), Some(problem)) = (&self.cert_file, version_problem(&words)) {
            return unusable(path, problem);
        }
        let files = [&self.ca_file, &self.cert_file, &self.key_file]
            .into_iter()
            .flatten();
        let files: Vec<_> = files.map(|file| file.display().to_string()).collect();
        unusable(Path::new(&files.join(" or ")), &words)
    }

    /// The login, if there is a user.
    pub(super) async fn login(&self) -> Result<Option<Login>, StoreError> {
        let (Some(user), Some(path)) = (&self.user, &self.password_file) else {
            return Ok(None);
        };
        let text =
            String::from_utf8(read(path).await?).map_err(|_| unusable(path, "it is not UTF-8"))?;
        let password = text.strip_suffix('\n').unwrap_or(&text);
        let password = password.strip_suffix('\r').unwrap_or(password);
        if password.is_empty() {
            return Err(unusable(path, "it is empty, and should hold a password"));
        }
        Ok(Some(Login {
            user: user.clone(),
            password: password.to_owned(),
        }))
    }

    /// The description of the login in errors.
    pub(super) fn login_action(&self) -> String {
        let user = self.user.as_deref().unwrap_or_default();
        let file = self.password_file.as_deref().unwrap_or(Path::new(""));
        format!(
            "log in as user {user:?} with the password in {}",
            file.display()
        )
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, StoreError> {
    let error = |source| StoreError::File {
        action: "read",
        path: path.display().to_string(),
        source,
    };
    tokio::fs::read(path).await.map_err(error)
}

/// Names an invalid or incomplete file: TLS itself would only report that the other side is not trusted.
async fn read_pem(path: &Path, kind: &str) -> Result<Vec<u8>, StoreError> {
    let bytes = read(path).await?;
    let end = format!("{kind}-----");
    let has_kind = String::from_utf8_lossy(&bytes)
        .lines()
        .any(|line| line.starts_with("-----END ") && line.trim_end().ends_with(&end));
    if has_kind {
        Ok(bytes)
    } else {
        Err(unusable(path, &format!("it holds no {kind} in PEM form")))
    }
}

fn unusable(path: &Path, problem: &str) -> StoreError {
    let source = io::Error::new(io::ErrorKind::InvalidData, problem.to_owned());
    StoreError::File {
        action: "use",
        path: path.display().to_string(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn password(content: &str) -> Result<String, StoreError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        std::fs::write(&path, content).unwrap();
        let access = EtcdAccess {
            user: Some("root".to_owned()),
            password_file: Some(path),
            ..EtcdAccess::default()
        };
        Ok(access.login().await?.unwrap().password)
    }

    #[tokio::test]
    async fn password_ends_before_last_end_of_line() {
        for (content, expected) in [
            ("x", "x"),
            ("x\n", "x"),
            ("x\r\n", "x"),
            (" x y \n\n", " x y \n"),
        ] {
            assert_eq!(password(content).await.unwrap(), expected);
        }
        let error = password("\n").await.unwrap_err().to_string();
        assert!(error.contains("password: it is empty"), "{error}");
    }

    #[tokio::test]
    async fn missing_or_unsuitable_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let access = EtcdAccess {
            tls: true,
            ca_file: Some(path.clone()),
            ..EtcdAccess::default()
        };
        let error = access
            .add_tls(ConnectOptions::new())
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with(&format!("failed to read {}: ", path.display())),
            "{error}"
        );
        // An incomplete file.
        std::fs::write(&path, "-----BEGIN CERTIFICATE-----\nMIIB").unwrap();
        let error = access
            .add_tls(ConnectOptions::new())
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.ends_with("ca.pem: it holds no CERTIFICATE in PEM form"),
            "{error}"
        );
    }
}
