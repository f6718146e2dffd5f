//! The capability that programming the kernel's tables needs.

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Makes `CAP_NET_ADMIN` effective where this process is permitted to use it.
///
/// In a container the file of the program permits it to a user who is not root. It is not effective from the start, for then
/// the kernel would refuse to start the program in a container that may not have it, as the one of the controllers. To be
/// called before there is a second thread: each has capabilities of its own, and inherits them from the one that starts it.
pub(crate) fn use_net_admin() {
    let Ok(mut sets) = capabilities(None) else { return };
    if sets.permitted.contains(CapabilitySet::NET_ADMIN) {
        sets.effective |= CapabilitySet::NET_ADMIN;
        // Should it fail, what needs the capability says what it lacks.
        let _ = set_capabilities(None, sets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permitted_capability_becomes_effective() {
        // Threads have capabilities of their own: this one gives it up first.
        std::thread::spawn(|| {
            let mut sets = capabilities(None).unwrap();
            let is_permitted = sets.permitted.contains(CapabilitySet::NET_ADMIN);
            sets.effective -= CapabilitySet::NET_ADMIN;
            set_capabilities(None, sets).unwrap();
            use_net_admin();
            let is_effective = capabilities(None).unwrap().effective.contains(CapabilitySet::NET_ADMIN);
            assert_eq!(is_effective, is_permitted);
        })
        .join()
        .unwrap();
    }
}
