//! Certificates for tests.

use std::{fs, io, path::PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::etcd::EtcdAccess;

/// A certificate authority, with one certificate for servers on 127.0.0.1 and one for clients; all in files that go when
/// this is dropped.
#[derive(Debug)]
pub struct Authority {
    folder: TempDir,
}

impl Authority {
    /// Makes all of them.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn new() -> io::Result<Self> {
        let authority = Self { folder: tempfile::Builder::new().prefix("contiv-ca-").tempdir()? };
        authority.renew()?;
        Ok(authority)
    }

    /// Makes all of them anew, in the same files: whoever trusts the old ones does not trust these.
    ///
    /// # Errors
    /// As [`Authority::new`].
    pub fn renew(&self) -> io::Result<()> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let mut params = params("an authority for tests")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).map_err(io::Error::other)?;
        fs::write(self.file("ca.pem"), certificate.pem())?;
        let issuer = Issuer::new(params, key);
        self.issue("server", &issuer)?;
        self.issue("client", &issuer)
    }

    /// Where a file is: `ca.pem`, `server.pem`, `server-key.pem`, `client.pem` or `client-key.pem`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// How a client gets into a server with these certificates.
    pub fn access(&self) -> EtcdAccess {
        EtcdAccess {
            tls: true,
            ca_file: Some(self.file("ca.pem")),
            cert_file: Some(self.file("client.pem")),
            key_file: Some(self.file("client-key.pem")),
            ..EtcdAccess::default()
        }
    }

    fn issue(&self, name: &str, issuer: &Issuer<'_, KeyPair>) -> io::Result<()> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = params(name)?.signed_by(&key, issuer).map_err(io::Error::other)?;
        fs::write(self.file(&format!("{name}.pem")), certificate.pem())?;
        fs::write(self.file(&format!("{name}-key.pem")), key.serialize_pem())
    }
}

fn params(name: &str) -> io::Result<CertificateParams> {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).map_err(io::Error::other)?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}
