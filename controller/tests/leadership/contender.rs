//! One of the competing processes. It reports on its standard output when the store has refused one of its writes.

use std::{env, sync::Arc, time::Duration};

use contiv_controller::{
    BoxError, Context, Controller, Key, Manager, Mapper, Outcome, ResourceType, Write, WriteError,
    lease::election::{Election, ElectionConfig},
};
use contiv_store::{
    Entry, Store,
    etcd::{EtcdAccess, EtcdStore},
};
use tokio::{io::AsyncReadExt, runtime::Runtime, time::sleep};
use tokio_util::sync::CancellationToken;

pub(crate) const ENDPOINTS: &str = "CONTIV_CONTENDER_ENDPOINTS";
pub(crate) const IDENTITY: &str = "CONTIV_CONTENDER_IDENTITY";
pub(crate) const ELECTION: &str = "/election";
pub(crate) const INPUT: &str = "/input/";
pub(crate) const OUTPUT: &str = "/output/";
pub(crate) const BEAT: &str = "/beat/";
/// The output of a deleted input. The output is not deleted, so that it can name its writer.
pub(crate) const GONE: &str = "gone";

pub(crate) fn run() {
    let variable = |name: &str| env::var(name).expect("the tests set it; do not run this by hand");
    let endpoints: Vec<String> = variable(ENDPOINTS).split(',').map(str::to_owned).collect();
    let identity = variable(IDENTITY);
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    Runtime::new()
        .unwrap()
        .block_on(compete(endpoints, identity));
}

async fn compete(endpoints: Vec<String>, identity: String) {
    let store: Arc<dyn Store> =
        Arc::new(EtcdStore::new(&endpoints, EtcdAccess::default()).unwrap());
    let config = ElectionConfig {
        ttl: Duration::from_secs(3),
        keep_alive_every: Duration::from_millis(300),
        step_down_after: Duration::from_millis(1500),
        ..ElectionConfig::new(ELECTION, &identity)
    };
    let (election, lease) = Election::enter(Arc::clone(&store), config).unwrap();
    let mut manager = Manager::new(store, lease);
    manager.register(copier(&identity)).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));
    // The end of the input is the end of the test.
    let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
    stop.cancel();
    running.await.unwrap();
    election.resign().await;
}

fn text(entry: &Entry) -> Result<String, std::string::FromUtf8Error> {
    String::from_utf8(entry.value.to_vec())
}

/// Copies inputs to outputs, prefixed with its name and term.
fn copier(identity: &str) -> Controller<String> {
    let inputs = ResourceType::new("input", INPUT, text);
    let outputs = ResourceType::new("output", OUTPUT, text);
    let names = (identity.to_owned(), identity.to_owned());
    Controller::for_type(&inputs)
        .with_watch(&outputs, Mapper::replace_type(&outputs, &inputs))
        .with_background(move |context: Context<String>| {
            // This task does not learn of the loss of the lease: the store must refuse its writes.
            tokio::spawn(write_until_refused(context, names.0.clone()));
            async { Ok(()) }
        })
        .with_backoff(Duration::from_millis(5), Duration::from_millis(200))
        .with_concurrency(2)
        .with_reconciler(move |context: Context<String>, key: Key| {
            let (inputs, outputs, identity) = (inputs.clone(), outputs.clone(), names.1.clone());
            async move { copy(&context, &inputs, &outputs, &identity, &key).await }
        })
        .build()
        .unwrap()
}

async fn copy(
    context: &Context<String>,
    inputs: &ResourceType<String>,
    outputs: &ResourceType<String>,
    identity: &str,
    key: &str,
) -> Result<Outcome, BoxError> {
    let output_key = outputs.key(inputs.name_of(key).ok_or("not an input")?);
    let input = context.cache().get(key);
    let wanted = input.as_ref().map_or(GONE, |input| input.value.as_str());
    let output = context.cache_of(outputs)?.get(&output_key);
    let term = context
        .writer()
        .fence()
        .ok_or("there is no fence")?
        .create_revision;
    let value = format!("{identity} {term} {wanted}");
    match output {
        Some(output) if output.value.ends_with(&format!(" {wanted}")) => {}
        Some(output) => context.writer().update(&output, value).await?,
        None if input.is_none() => {}
        None => context.writer().create(&output_key, value).await?,
    }
    Ok(Outcome::Done)
}

async fn write_until_refused(context: Context<String>, identity: String) {
    let Some(term) = context.writer().fence().map(|fence| fence.create_revision) else {
        return;
    };
    for beat in 0_u64.. {
        let write = Write::create(
            &format!("{BEAT}{term}/{beat}"),
            format!("{identity} {term} {beat}"),
        );
        if let Err(WriteError::LeaseLost { .. }) = context.writer().commit(vec![write]).await {
            println!("refused {term}");
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
}
