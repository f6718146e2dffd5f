//! An instance of a service.

/// One instance of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsulInstance {
    /// Its id.
    pub id: String,
    /// Its own address; empty for that of its node.
    pub address: String,
    /// The address of its node.
    pub node_address: String,
    /// Its port.
    pub port: u16,
    /// Its tags.
    pub tags: Vec<String>,
    /// The status of its check: `passing`, `warning` or `critical`.
    pub status: String,
}

impl ConsulInstance {
    /// An instance that passes its check. Its id is address and port.
    pub fn new(address: &str, port: u16, tags: &[&str]) -> Self {
        Self {
            id: format!("{address}-{port}"),
            address: address.to_owned(),
            node_address: "192.0.2.1".to_owned(),
            port,
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            status: "passing".to_owned(),
        }
    }
}
