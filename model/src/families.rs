//! Address families.

/// The address families that something concerns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Families {
    /// IPv4.
    pub ipv4: bool,
    /// IPv6.
    pub ipv6: bool,
}

impl Families {
    /// Both.
    pub const ALL: Self = Self {
        ipv4: true,
        ipv6: true,
    };
}
