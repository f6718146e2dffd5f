//! A controller of another project: it keeps a copy of each note in etcd.
//!
//! `cargo run -- 127.0.0.1:2379`
//!
//! `/notes/NAME` is copied to `/copies/NAME`, and the copy of a note that is gone is deleted. Several processes can run: one of
//! them holds the lease and writes.

use std::{env, error::Error, sync::Arc};

use contiv_controller::{
    Context, Controller, Key, Manager, Mapper, Outcome, ResourceType, Write,
    lease::election::{Election, ElectionConfig},
};
use contiv_store::{
    Entry,
    etcd::{EtcdAccess, EtcdStore},
};
use tokio_util::sync::CancellationToken;

fn text(entry: &Entry) -> Result<String, std::string::FromUtf8Error> {
    String::from_utf8(entry.value.to_vec())
}

fn copying() -> Result<Controller<String>, contiv_controller::BuildError> {
    let notes = ResourceType::new("note", "/notes/", text);
    let copies = ResourceType::new("copy", "/copies/", text);
    Controller::for_type(&notes)
        .with_watch(&copies, Mapper::replace_type(&copies, &notes))
        .with_reconciler(move |context: Context<String>, key: Key| {
            let (notes, copies) = (notes.clone(), copies.clone());
            async move {
                let copy_key = copies.key(notes.name_of(&key).ok_or("not a note")?);
                let note = context.cache().get(&key);
                let copy = context.cache_of(&copies)?.get(&copy_key);
                let write = match (note, copy) {
                    (Some(note), None) => Write::create(&copy_key, note.value.clone()),
                    (Some(note), Some(copy)) if note.value != copy.value => {
                        Write::update(&copy, note.value.clone())
                    }
                    (None, Some(copy)) => Write::delete(&copy),
                    _ => return Ok(Outcome::Done),
                };
                println!("{key}: writing {}", write.key());
                context.writer().commit(vec![write]).await?;
                Ok(Outcome::Done)
            }
        })
        .build()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let member = env::args()
        .nth(1)
        .ok_or("usage: example-controller HOST:PORT")?;
    let store = Arc::new(EtcdStore::new(&[member], EtcdAccess::default())?);
    let identity = format!("process-{}", std::process::id());
    let config = ElectionConfig::new("/example/election", &identity);
    let (election, lease) = Election::enter(store.clone(), config)?;
    let mut manager = Manager::new(store, lease);
    manager.register(copying()?)?;
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));
    tokio::signal::ctrl_c().await?;
    // First stop all writers, then resign, so that the next leader need not wait for the lease to expire.
    stop.cancel();
    running.await?;
    election.resign().await;
    Ok(())
}
