//! The protocol number by which our routes are told from others.

/// The protocol number of all our routes and rules. It is not in iproute2's list of protocols.
pub(crate) const PROTOCOL: u8 = 0x43;
