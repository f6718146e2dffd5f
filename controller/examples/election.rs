//! Leader election: of several processes only the leader counts. Start it twice, stop or pause the leader, and the other one takes
//! over.
//!
//! `cargo run -p contiv-controller --example election -- etcd://127.0.0.1:2379 NAME`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{env, error::Error, sync::Arc, time::Duration};

use contiv_controller::{
    BoxError, Context, Controller, Key, Manager, Outcome, ResourceType, WriteError,
    lease::election::{Election, ElectionConfig},
};
use tokio_util::sync::CancellationToken;

/// Counts up `/demo/counter` while it holds the lease.
fn counting(name: &str) -> Result<Controller<u64>, contiv_controller::BuildError> {
    let counters = ResourceType::new("counter", "/demo/counter", |entry| {
        Ok::<u64, BoxError>(std::str::from_utf8(&entry.value)?.parse()?)
    });
    let name = name.to_owned();
    let first = counters.key("");
    Controller::for_type(&counters)
        .with_background(move |context: Context<u64>| {
            let first = first.clone();
            async move {
                match context.writer().create(&first, "0").await {
                    // It exists already.
                    Ok(()) | Err(WriteError::Conflict { .. }) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            }
        })
        .with_reconciler(move |context: Context<u64>, key: Key| {
            let name = name.clone();
            async move {
                let counter = context.cache().get(&key).ok_or("the counter is gone")?;
                // Its own write leads to the next run.
                tokio::time::sleep(Duration::from_secs(1)).await;
                let next = counter.value + 1;
                context.writer().update(&counter, next.to_string()).await?;
                println!("{name} counts {next}");
                Ok(Outcome::Done)
            }
        })
        .build()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let (Some(url), Some(name)) = (arguments.next(), arguments.next()) else {
        return Err("usage: election etcd://HOST:PORT NAME".into());
    };
    let store =
        contiv_store::open(&url.parse()?, contiv_store::etcd::EtcdAccess::default()).await?;
    let config = ElectionConfig::new("/demo/election", &name);
    let (election, lease) = Election::enter(Arc::clone(&store), config)?;
    let mut manager = Manager::new(store, lease);
    manager.register(counting(&name)?)?;
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));
    tokio::signal::ctrl_c().await?;
    // First stop all writers, then resign, so that the next leader need not wait for the lease to expire.
    stop.cancel();
    running.await?;
    election.resign().await;
    Ok(())
}
