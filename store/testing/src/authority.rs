//! Certificates for tests.

use std::{fs, io, path::PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tempfile::TempDir;

use contiv_store::etcd::EtcdAccess;

/// A self-signed certificate that no client trusts.
const VERSION_1: &str = "-----BEGIN CERTIFICATE-----
MIIBHjCBxQIUEYYGLBB08REWAnkMfRJHsyEJU1MwCgYIKoZIzj0EAwIwETEPMA0G
A1UEAwwGY2xpZW50MCAXDTI2MTEyNDEwMjg1MloYDzIxMjYxMDMxMTAyODUyWjAR
MQ8wDQYDVQQDDAZjbGllbnQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASDs6/S
PKZLxPXW/9MzVLDcruS/YlfdHGCv/hk6NdOR5Bbz30BLD8CqyDCytRbm136JMp5b
oXeLP2TfkgxraY7fMAoGCCqGSM49BAMCA0gAMEUCIHm4GFRQtHfLY/PisO31WJ+1
qgfzYsYmCq+DuVPB2DBSAiEAmBftlPEZQxqo65En3Iw5bslavwbXdgQrKs8doLM3
514=
-----END CERTIFICATE-----
";

/// A certificate authority, with one certificate for servers on 127.0.0.1 and one for clients, in files that are deleted when
/// this is dropped.
#[derive(Debug)]
pub struct Authority {
    folder: TempDir,
}

impl Authority {
    /// Creates all certificates.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn new() -> io::Result<Self> {
        let authority = Self {
            folder: tempfile::Builder::new().prefix("contiv-ca-").tempdir()?,
        };
        authority.renew()?;
        Ok(authority)
    }

    /// Replaces all certificates in the same files. Clients that trust the old authority do not trust the new one.
    ///
    /// # Errors
    /// As [`Authority::new`].
    pub fn renew(&self) -> io::Result<()> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let mut params = params("an authority for tests")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).map_err(io::Error::other)?;
        fs::write(self.file("ca.pem"), certificate.pem())?;
        fs::write(self.file("ca-key.pem"), key.serialize_pem())?;
        let issuer = Issuer::new(params, key);
        self.issue("server", "server", &issuer)?;
        self.issue("client", "client", &issuer)
    }

    /// Replaces the client's certificate and its key by new ones of the same authority.
    ///
    /// # Errors
    /// As [`Authority::new`].
    pub fn renew_client(&self) -> io::Result<()> {
        self.renew_client_as("client")
    }

    /// The same, with another common name than `client`.
    ///
    /// # Errors
    /// As [`Authority::new`].
    pub fn renew_client_as(&self, common_name: &str) -> io::Result<()> {
        let key = fs::read_to_string(self.file("ca-key.pem"))?;
        let key = KeyPair::from_pem(&key).map_err(io::Error::other)?;
        let mut params = params("an authority for tests")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        self.issue("client", common_name, &Issuer::new(params, key))
    }

    /// The client's present certificate in DER.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn client_certificate(&self) -> io::Result<Vec<u8>> {
        let certificate =
            CertificateDer::from_pem_file(self.file("client.pem")).map_err(io::Error::other)?;
        Ok(certificate.to_vec())
    }

    /// The path of a file: `ca.pem`, `server.pem`, `server-key.pem`, `client.pem` or `client-key.pem`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The client's settings for a server with these certificates.
    pub fn access(&self) -> EtcdAccess {
        EtcdAccess {
            tls: true,
            ca_file: Some(self.file("ca.pem")),
            cert_file: Some(self.file("client.pem")),
            key_file: Some(self.file("client-key.pem")),
            ..EtcdAccess::default()
        }
    }

    /// Replaces the client's certificate by one of X.509 version 1, as `openssl x509 -req` makes.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn use_version_1(&self) -> io::Result<()> {
        fs::write(self.file("client.pem"), VERSION_1)
    }

    fn issue(&self, name: &str, common_name: &str, issuer: &Issuer<'_, KeyPair>) -> io::Result<()> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = params(common_name)?
            .signed_by(&key, issuer)
            .map_err(io::Error::other)?;
        fs::write(self.file(&format!("{name}.pem")), certificate.pem())?;
        fs::write(self.file(&format!("{name}-key.pem")), key.serialize_pem())
    }
}

fn params(common_name: &str) -> io::Result<CertificateParams> {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).map_err(io::Error::other)?;
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    Ok(params)
}
