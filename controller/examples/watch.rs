//! Prints the content of a store below a prefix and its changes until interrupted.
//!
//! `cargo run -p contiv-controller --example watch -- etcd://127.0.0.1:2379 /vnf-agent/`
//! `cargo run -p contiv-controller --example watch -- dir:examples /vnf-agent/`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{env, error::Error};

use contiv_controller::{
    Lease, Manager, ResourceType,
    callbacks::{controller_of, new_resource},
};
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let (Some(url), Some(prefix)) = (arguments.next(), arguments.next()) else {
        return Err("usage: watch STORE PREFIX".into());
    };
    let store =
        contiv_store::open(&url.parse()?, contiv_store::etcd::EtcdAccess::default()).await?;
    let objects = ResourceType::new("object", &prefix, |entry| {
        String::from_utf8(entry.value.to_vec())
    });
    let resource = new_resource(
        &objects,
        |key, object| async move {
            println!("+ {key} {}", object.value);
            Ok(())
        },
        |key, last_known| async move {
            println!("- {key} {}", last_known.value);
            Ok(())
        },
    );
    let mut manager = Manager::new(store, Lease::always_leader());
    manager.register(controller_of(resource).build()?)?;
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));
    tokio::signal::ctrl_c().await?;
    stop.cancel();
    running.await?;
    Ok(())
}
