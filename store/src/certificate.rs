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

/// rustls' name for a certificate that no trusted authority has signed.
const UNKNOWN_ISSUER: &str = "UnknownIssuer";
const UNKNOWN_ISSUER_HINT: &str = "no trusted authority has signed this certificate; the file of authorities must have the \
                                   certificate of the authority that did, not that of the server or of a client";

/// The text of an error, with what to do if it is about an unknown authority: most often the file of authorities has the
/// certificate of the server or of a client.
pub fn with_certificate_hint(words: String) -> String {
    if !words.contains(UNKNOWN_ISSUER) || words.contains(UNKNOWN_ISSUER_HINT) {
        return words;
    }
    format!("{words} ({UNKNOWN_ISSUER_HINT})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_authority_is_explained_and_other_errors_are_kept() {
        let explained = with_certificate_hint("invalid peer certificate: UnknownIssuer".to_owned());
        assert!(
            explained.starts_with("invalid peer certificate: UnknownIssuer (no trusted authority"),
            "{explained}"
        );
        assert_eq!(with_certificate_hint(explained.clone()), explained);
        assert_eq!(with_certificate_hint("timed out".to_owned()), "timed out");
    }
}
