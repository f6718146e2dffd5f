//! Renderers and netlink with random failures by seed, for tests of code that drives renderers.

mod faulty;
mod netlink_faults;

pub use faulty::{FaultRates, FaultSwitch, Faulty};
pub use netlink_faults::{MissingModule, NetlinkFaults};
