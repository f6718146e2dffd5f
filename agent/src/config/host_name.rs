//! The host name.

use std::fs;

use super::ConfigError;

/// The default name of this machine's node: the host name, as for the kubelet.
pub(crate) fn default_node_name() -> Result<String, ConfigError> {
    Ok(host_name("node-name")?.to_lowercase())
}

/// The host name, as the default of a key.
pub(super) fn host_name(key: &str) -> Result<String, ConfigError> {
    let path = "/proc/sys/kernel/hostname";
    let name = fs::read_to_string(path).map_err(|error| {
        ConfigError::one(format!("{key}: failed to read {path}: {error}; set it"))
    })?;
    Ok(name.trim().to_owned())
}
