//! Taints of nodes.

/// The cluster autoscaler sets it before it removes a node.
pub const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";
