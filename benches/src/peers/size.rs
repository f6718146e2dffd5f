//! What is loaded.

/// The number of backends of each service, all ports of one pod.
pub(super) const BACKENDS: u16 = 4;
pub(super) const FIRST_PORT: u16 = 9000;
/// With more services only some have all their backends and receive packets; the others have one. Otherwise loading takes a
/// peer minutes, and its rules for the measured services are the same.
pub(super) const ALL_COMPLETE: usize = 10_000;
/// The service range, as kubeadm sets it. All layouts drop packets to its unused addresses.
pub(super) const SERVICE_RANGE: &str = "10.96.0.0/12";
