//! x
/// x
pub struct DnsServer;
/// x
pub struct Zone;
