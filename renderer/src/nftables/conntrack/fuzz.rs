//! Properties of conntrack messages.

use super::flow::Flow;
use crate::netlink::message::{NFNL_SUBSYS_CTNETLINK, messages};

/// Any input is read or ignored, without a panic.
pub(crate) fn flows(input: &[u8]) {
    let objects = messages(input).filter_map(|message| message.object(NFNL_SUBSYS_CTNETLINK));
    for flow in objects.filter_map(Flow::read) {
        let _ = flow.is_translated();
    }
}
