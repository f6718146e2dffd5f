//! An etcd of three members, three competing processes, and the test that creates work for them.

use std::{
    collections::BTreeMap,
    env,
    process::Stdio,
    time::{Duration, Instant},
};

use contiv_store::{
    Operation, Store,
    etcd::{EtcdAccess, EtcdStore},
};
use contiv_store_testing::{Etcd, Proxy};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rand::RngExt;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    contender::{ELECTION, ENDPOINTS, GONE, IDENTITY, INPUT, OUTPUT},
    history::History,
};

/// The time limit of all events. Generous, so that a busy machine fails no test.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Arena {
    pub(crate) etcd: Vec<Etcd>,
    pub(crate) contenders: Vec<Contender>,
    store: EtcdStore,
    /// The expected final outputs.
    expected: BTreeMap<String, String>,
    step: u32,
}

/// The holder of the lease and its creation revision.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) index: usize,
    pub(crate) term: i64,
}

impl Arena {
    pub(crate) async fn start() -> Self {
        let etcd = Etcd::start_cluster(3).await.unwrap();
        let endpoints: Vec<String> = etcd.iter().map(Etcd::endpoint).collect();
        let store = EtcdStore::new(&endpoints, EtcdAccess::default()).unwrap();
        let mut contenders = Vec::new();
        for index in 0..3 {
            contenders.push(Contender::start(index, &endpoints).await);
        }
        Self {
            etcd,
            contenders,
            store,
            expected: BTreeMap::new(),
            step: 0,
        }
    }

    /// Creates, changes and deletes inputs at random.
    pub(crate) async fn work(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step += 1;
            let (key, delete) = (
                rand::rng().random_range(0..12),
                rand::rng().random_bool(0.3),
            );
            let (input, output) = (format!("{INPUT}{key}"), format!("{OUTPUT}{key}"));
            let operation = if delete {
                Operation::Delete { key: input }
            } else {
                Operation::Put {
                    key: input,
                    value: format!("v{}", self.step).into(),
                }
            };
            // While a member of etcd is down, the result of a write may be unknown; repeating it is harmless.
            let start = Instant::now();
            while let Err(error) = self.store.commit(vec![operation.clone()]).await {
                assert!(start.elapsed() < EVENT_TIMEOUT, "{error}");
                sleep(Duration::from_millis(50)).await;
            }
            let wanted = if delete {
                GONE.to_owned()
            } else {
                format!("v{}", self.step)
            };
            self.expected.insert(output, wanted);
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until a process holds the lease, and returns it.
    pub(crate) async fn holder(&self) -> Holder {
        self.holder_after(&Holder { index: 0, term: 0 }).await
    }

    /// Waits for the next holder after this one.
    pub(crate) async fn holder_after(&self, before: &Holder) -> Holder {
        let start = Instant::now();
        loop {
            if let Some(holder) = self
                .current()
                .await
                .filter(|holder| holder.term > before.term)
            {
                if before.term > 0 {
                    println!(
                        "taken over after {:?}; the lease lasts 3 s",
                        start.elapsed()
                    );
                }
                return holder;
            }
            assert!(start.elapsed() < EVENT_TIMEOUT, "nobody holds the lease");
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn current(&self) -> Option<Holder> {
        let entry = self.store.list(ELECTION).await.ok()?.entries.pop()?;
        let identity = std::str::from_utf8(&entry.value)
            .unwrap()
            .split(' ')
            .next()
            .unwrap();
        Some(Holder {
            index: identity.parse().unwrap(),
            term: entry.create_revision,
        })
    }

    /// Waits until the outputs are as expected, and checks that only holders of the lease wrote them.
    pub(crate) async fn end(mut self) -> History {
        let start = Instant::now();
        loop {
            let outputs = self.outputs().await;
            let wrong: Vec<_> = self
                .expected
                .iter()
                // An input that was deleted before any process saw it has no output.
                .filter(|(key, wanted)| {
                    outputs.get(*key).map_or(GONE, String::as_str) != wanted.as_str()
                })
                .collect();
            if wrong.is_empty() {
                break;
            }
            assert!(
                start.elapsed() < EVENT_TIMEOUT,
                "lost: {wrong:?} of {outputs:?}"
            );
            sleep(Duration::from_millis(50)).await;
        }
        let revision = self.store.list(INPUT).await.unwrap().revision;
        let history = History::read(&self.store, revision).await;
        history.check();
        println!(
            "{} writes in {} terms, each by the one that held the lease",
            history.writes,
            history.terms.len()
        );
        for contender in &mut self.contenders {
            contender.end().await;
        }
        history
    }

    async fn outputs(&self) -> BTreeMap<String, String> {
        let entries = self
            .store
            .list(OUTPUT)
            .await
            .map(|snapshot| snapshot.entries)
            .unwrap_or_default();
        let wanted = |value: &[u8]| {
            std::str::from_utf8(value)
                .unwrap()
                .rsplit(' ')
                .next()
                .unwrap()
                .to_owned()
        };
        entries
            .into_iter()
            .map(|entry| (entry.key, wanted(&entry.value)))
            .collect()
    }
}

pub(crate) struct Contender {
    process: Child,
    wires: Vec<Proxy>,
    /// The terms in which the store has refused a write.
    refused: watch::Receiver<Vec<i64>>,
}

impl Contender {
    async fn start(index: usize, endpoints: &[String]) -> Self {
        let mut wires = Vec::new();
        for endpoint in endpoints {
            wires.push(Proxy::start(endpoint).await.unwrap());
        }
        let through: Vec<String> = wires.iter().map(Proxy::endpoint).collect();
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["contender", "--exact", "--ignored", "--nocapture"])
            .env(ENDPOINTS, through.join(","))
            .env(IDENTITY, index.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (sender, refused) = watch::channel(Vec::new());
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(term) = line.strip_prefix("refused ") {
                    sender.send_modify(|terms| terms.push(term.parse().unwrap()));
                }
            }
        });
        Self {
            process,
            wires,
            refused,
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id().expect("it runs")).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }

    pub(crate) async fn cut(&mut self) {
        for wire in &mut self.wires {
            wire.cut().await;
        }
    }

    pub(crate) async fn reconnect(&mut self) {
        for wire in &mut self.wires {
            wire.reconnect().await.unwrap();
        }
    }

    /// Waits until the store has refused a write of this term.
    pub(crate) async fn wait_until_refused(&mut self, term: i64) {
        let refused = self.refused.wait_for(|terms| terms.contains(&term));
        let refused = timeout(EVENT_TIMEOUT, refused)
            .await
            .expect("no write was refused")
            .map(drop);
        refused.expect("the process has ended");
    }

    /// Ends the process by ending its input.
    async fn end(&mut self) {
        drop(self.process.stdin.take());
        timeout(EVENT_TIMEOUT, self.process.wait())
            .await
            .expect("it does not end")
            .unwrap();
    }
}
