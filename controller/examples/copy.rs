//! A controller that keeps a copy of each note. It needs nothing outside: the store is in memory.
//!
//! `cargo run -p contiv-controller --example copy`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, time::Duration};

use contiv_controller::{
    BoxError, Context, Controller, Key, Lease, Manager, Mapper, Outcome, ResourceType, Write,
};
use contiv_store::{Entry, Operation, Store};
use contiv_store_testing::MemoryStore;
use tokio_util::sync::CancellationToken;

fn text(entry: &Entry) -> Result<String, std::string::FromUtf8Error> {
    String::from_utf8(entry.value.to_vec())
}

/// Copies `/notes/NAME` to `/copies/NAME`, and deletes copies of notes that are gone.
fn copying() -> Result<Controller<String>, contiv_controller::BuildError> {
    let notes = ResourceType::new("note", "/notes/", text);
    let copies = ResourceType::new("copy", "/copies/", text);
    Controller::for_type(&notes)
        // A change of a copy leads to a reconciliation of its note.
        .with_watch(&copies, Mapper::replace_type(&copies, &notes))
        .with_concurrency(2)
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
                Ok::<_, BoxError>(Outcome::Done)
            }
        })
        .build()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::new();
    let mut manager = Manager::new(store.shared(), Lease::always_leader());
    manager.register(copying()?)?;
    manager.validate_dependencies()?;
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));

    let put = |key: &str, value: &'static str| Operation::Put {
        key: key.to_owned(),
        value: value.into(),
    };
    let delete = |key: &str| Operation::Delete {
        key: key.to_owned(),
    };
    for operation in [
        put("/notes/milk", "buy some"),
        put("/notes/milk", "buy two"),
        put("/copies/milk", "changed by another writer"),
        delete("/copies/milk"),
        delete("/notes/milk"),
    ] {
        println!("{operation:?}");
        store.commit(vec![operation]).await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stop.cancel();
    running.await?;
    Ok(())
}
