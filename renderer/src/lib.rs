//! Renderers turn the desired services into kernel state, or into text that describes it.
//!
//! Planning is pure: it turns services into sorted elements or routes. Those are compared with what was applied before, and only
//! the differences are sent to the kernel. Only the modules that apply changes or read the kernel's state do I/O.

pub mod dry_run;
pub mod error;
pub mod forwarding;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod interface_routes;
pub mod kernel;
pub mod linux;
pub mod local_addresses;
mod netlink;
mod nft_json;
pub mod nftables;
pub mod packet_path;
pub mod poison_isolator;
pub mod registry;
pub mod renderer;
pub mod route;
mod route_protocol;
pub mod shared_tables;
pub mod table_listing;
pub mod verify;
pub mod watch;

pub use error::RenderError;
pub use forwarding::{ForwardingNeeds, ForwardingOff};
pub use local_addresses::{InterfaceKind, LocalAddresses, LocalAddressesError};
pub use nft_json::{NftJsonError, NftOutput};
pub use renderer::{Description, Rejected, Renderer, Report};
pub use table_listing::{ListedChain, TableListing};
pub use verify::{Confirmation, Deviation, Drift, Verification, Verifier};
pub use watch::{ForeignChange, Process, Watch};
