//! Restricts changes to callers on this machine.

use std::net::IpAddr;

use axum::{
    extract::{ConnectInfo, FromRequestParts},
    http::request::Parts,
};

use super::error::ApiError;
use crate::connections::Peer;

/// Proof that the caller is on this machine. A caller without an address is not.
#[derive(Debug)]
pub(super) struct FromLoopback;

impl<S: Sync> FromRequestParts<S> for FromLoopback {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        let peer = parts
            .extensions
            .get::<ConnectInfo<Peer>>()
            .map(|ConnectInfo(Peer(peer))| peer.ip());
        if peer.is_some_and(is_loopback) {
            Ok(Self)
        } else {
            Err(ApiError::NotLoopback)
        }
    }
}

/// On an IPv6 socket IPv4 callers have mapped addresses.
fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_known_in_both_families_and_mapped() {
        for (address, expected) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("10.0.0.1", false),
            ("::ffff:10.0.0.1", false),
            ("fd00::1", false),
        ] {
            assert_eq!(is_loopback(address.parse().unwrap()), expected, "{address}");
        }
    }
}
