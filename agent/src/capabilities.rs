//! The capability that the agent needs to program nftables and routes.

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Makes `CAP_NET_ADMIN` effective if this process has it in its permitted set.
///
/// In the container image the program's file capabilities only add it to the permitted set of a user who is not root. With the
/// effective bit in the file, the kernel would refuse to start the program in a container whose bounding set lacks the
/// capability, such as that of the controllers.
/// Call this before starting a second thread: each thread has its own capabilities, inherited from the thread that created it.
pub(crate) fn use_net_admin() {
    let Ok(mut sets) = capabilities(None) else {
        return;
    };
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
        // In a separate thread: the test drops the capability, and capabilities belong to threads.
        std::thread::spawn(|| {
            let mut sets = capabilities(None).unwrap();
            let is_permitted = sets.permitted.contains(CapabilitySet::NET_ADMIN);
            sets.effective -= CapabilitySet::NET_ADMIN;
            set_capabilities(None, sets).unwrap();
            use_net_admin();
            let is_effective = capabilities(None)
                .unwrap()
                .effective
                .contains(CapabilitySet::NET_ADMIN);
            assert_eq!(is_effective, is_permitted);
        })
        .join()
        .unwrap();
    }
}
