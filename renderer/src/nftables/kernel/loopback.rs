//! Node ports on 127.0.0.1: the sysctl `route_localnet` lets connections from loopback leave through other interfaces.
//!
//! `route_localnet` also accepts packets from other machines to loopback. The set `loopback4` protects against that, so it is
//! filled before the switch is turned on, and emptied only after it is turned off. IPv6 has no such switch. Source: the
//! kernel's `Documentation/networking/ip-sysctl.rst`, CVE-2020-8558.

use std::io;

use contiv_model::NodeFacts;

use super::read::{self, ExistingTable};
use crate::kernel::Kernel;
use crate::nftables::{
    layout::{Family, Set, SetKind},
    netlink::{NetlinkError, Socket},
};

const SWITCH: &str = "net/ipv4/conf/all/route_localnet";

/// True if node ports answer on 127.0.0.1.
fn is_needed(node: &NodeFacts) -> bool {
    node.node_ips
        .iter()
        .any(|ip| ip.is_ipv4() && ip.is_loopback())
}

/// Turns the switch on if node ports answer on loopback. The protection must be in place. Everything else works without the
/// switch, so a failure is only reported.
pub(crate) fn enable(kernel: &dyn Kernel, node: &NodeFacts) {
    if is_needed(node)
        && let Err(error) = set_switch(kernel, "1")
    {
        tracing::error!(
            %error,
            "node ports do not answer on 127.0.0.1: /proc/sys/{SWITCH} could not be set; run `sysctl -w net.ipv4.conf.all.route_localnet=1`"
        );
    }
}

/// Turns the switch off while the protection is still in place.
pub(crate) fn disable(
    socket: &mut Socket,
    existing: &ExistingTable,
    desired: Option<&NodeFacts>,
) -> Result<(), NetlinkError> {
    let guard = Set::new(SetKind::Loopback, Family::V4);
    let is_guarded = existing.usable && existing.shaped.contains(&guard);
    if desired.is_some_and(is_needed) || !is_guarded || !read::has_elements(socket, guard)? {
        return Ok(());
    }
    if let Err(error) = set_switch(&**socket.kernel(), "0") {
        tracing::error!(
            %error,
            "other machines may reach 127.0.0.1 of this node: /proc/sys/{SWITCH} could not be set; run `sysctl -w net.ipv4.conf.all.route_localnet=0`"
        );
    }
    Ok(())
}

fn set_switch(kernel: &dyn Kernel, value: &str) -> io::Result<()> {
    // Not written if the value is right: the file may be read-only.
    if kernel.setting(SWITCH)? == value {
        Ok(())
    } else {
        kernel.set_setting(SWITCH, value)
    }
}
