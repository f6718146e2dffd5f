//! The capability that programming the kernel's tables needs.

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Makes `CAP_NET_ADMIN` effective if this process has it in its permitted set.
///
/// In a container the file capabilities of the program permit it to a user who is not root. They do not make it effective: then
/// the kernel would refuse to start the program in a container whose bounding set lacks it, such as that of the controllers.
/// To be called before there is a second thread: threads have capabilities of their own, inherited from their creator.
pub(crate) fn use_net_admin() {
    let Ok(mut sets) = capabilities(None) else { return };
    if sets.permitted.contains(CapabilitySet::NET_ADMIN) {
        sets.effective |= CapabilitySet::NET_ADMIN;
        // A failure shows in the first netlink request, whose error names the capability.
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
