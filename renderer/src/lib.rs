//! Renderers turn the desired services into kernel state, or into text that describes it.
//!
//! Planning is pure: a service becomes ordered values. Values are compared with what was applied before. Only an applier does
//! I/O.

pub mod dry_run;
pub mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod kernel;
pub mod linux;
pub mod local_addresses;
mod netlink;
mod nft_json;
pub mod nftables;
pub mod poison_isolator;
pub mod registry;
pub mod renderer;
pub mod route;
pub mod table_listing;
pub mod verify;
pub mod watch;

pub use error::RenderError;
pub use local_addresses::{LocalAddresses, LocalAddressesError, has_interface};
pub use nft_json::{NftJsonError, NftOutput};
pub use renderer::{Description, Rejected, Renderer, Report};
pub use table_listing::{ListedChain, TableListing};
pub use verify::{Confirmation, Deviation, Drift, Verification, Verifier};
pub use watch::{ForeignChange, Process, Watch};
