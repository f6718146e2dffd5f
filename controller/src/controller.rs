//! Controllers: reconcile a key whenever something it depends on has changed.
//!
//! ```
//! use contiv_controller::{Context, Controller, Key, Mapper, Outcome, ResourceType};
//!
//! # fn main() -> Result<(), contiv_controller::BuildError> {
//! let text = |entry: &contiv_store::Entry| String::from_utf8(entry.value.to_vec());
//! let services = ResourceType::new("service", "/services/", text);
//! let pods = ResourceType::new("pod", "/pods/", text); // a pod is the name of its service
//!
//! let controller = Controller::for_type(&services)
//!     .with_watch(&pods, Mapper::map_owner(|service: &String| Some(format!("/services/{service}").into())))
//!     .with_reconciler(|context: Context<String>, key: Key| async move {
//!         match context.cache().get(&key) {
//!             Some(service) => println!("{key} is there, at revision {}", service.mod_revision),
//!             None => println!("{key} is gone"),
//!         }
//!         Ok(Outcome::Done)
//!     })
//!     .build()?;
//! assert_eq!(
//!     controller.to_string(),
//!     "<Controller managed_type=service, watched_types=[pod], backoff=<base=5ms, max=16m40s>, placement=singleton>"
//! );
//! # Ok(())
//! # }
//! ```

mod build_error;
mod builder;
mod cache_sync;
mod context;
mod custom_watch;
mod definition;
mod deleted_objects;
mod display;
mod map_loop;
mod opened;
mod outcome;
mod panic_text;
mod reconciler;
mod run;
mod run_error;
mod standby;
mod status;
mod typed_watch;
mod worker;

pub use build_error::BuildError;
pub use builder::ControllerBuilder;
pub use context::Context;
pub use definition::Controller;
pub use outcome::{Outcome, RequeueAfterError};
pub use reconciler::Reconciler;
pub use run_error::RunError;
pub use status::Status;
