//! What rustls says of certificates, in words that help.

/// How webpki calls a certificate that is not of X.509 version 3.
const UNSUPPORTED_VERSION: &str = "UnsupportedCertVersion";

/// What is wrong with the certificate of this client, if these words of rustls mean its version. `kube` takes it for a fault
/// of the private key.
pub(crate) fn version_problem(words: &str) -> Option<&'static str> {
    words.contains(UNSUPPORTED_VERSION).then_some(
        "the client's certificate is of X.509 version 1, and only version 3 is supported; have one issued with extensions",
    )
}
