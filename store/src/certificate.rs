//! Translates rustls' errors about certificates into helpful text.

/// webpki's name for a certificate of another X.509 version than 3.
const UNSUPPORTED_VERSION: &str = "UnsupportedCertVersion";

/// The problem of this client's certificate, if rustls' error means its version. `kube` reports it as an error of the private
/// key.
pub(crate) fn version_problem(words: &str) -> Option<&'static str> {
    words.contains(UNSUPPORTED_VERSION).then_some(
        "the client's certificate is of X.509 version 1, and only version 3 is supported; have one issued with extensions",
    )
}
