//! Renderers and netlink that fail now and then, by seed, for tests of whoever drives renderers.

mod faulty;
mod netlink_faults;

pub use faulty::{FaultRates, FaultSwitch, Faulty};
pub use netlink_faults::{MissingModule, NetlinkFaults};
