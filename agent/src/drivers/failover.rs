//! Watches the backends of services with failover, and probes those that do not answer.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use contiv_node::message::{Input, Watch};
use tokio::{runtime::Handle, sync::mpsc::Sender};
use tracing::warn;

use super::{attempt_watcher::AttemptWatcher, prober::Prober};

/// The handle of the failover driver.
#[derive(Debug)]
pub(super) struct FailoverDriver {
    inputs: Sender<Input>,
    watcher: Option<AttemptWatcher>,
    prober: Prober,
}

impl FailoverDriver {
    /// A driver that sends its reports to the core by `inputs`.
    pub(super) fn new(inputs: Sender<Input>, answer_within: Duration) -> Self {
        Self {
            inputs,
            watcher: None,
            prober: Prober::new(answer_within),
        }
    }

    /// Changes which backends are watched. Where none ever is, there is no thread for it. Must be called in a runtime.
    pub(super) fn watch(&mut self, changes: BTreeMap<SocketAddr, Option<Watch>>) {
        if self.watcher.is_none() {
            match AttemptWatcher::start(self.inputs.clone(), self.prober.clone()) {
                Ok(watcher) => self.watcher = Some(watcher),
                Err(error) => warn!(%error, "cannot start the thread of failover"),
            }
        }
        if let Some(watcher) = &self.watcher {
            watcher.watch(changes);
        }
    }

    /// Tries to connect to a backend, and reports whether it accepted. Must be called in a runtime.
    pub(super) fn probe(&self, backend: SocketAddr) {
        let inputs = self.inputs.clone();
        let report = async move |is_answered| {
            let probed = Input::Probed {
                backend,
                is_answered,
            };
            // The node ends before its drivers.
            let _ = inputs.send(probed).await;
        };
        self.prober.probe(&Handle::current(), backend, report);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use tokio::{net::TcpListener, sync::mpsc};

    use super::*;
    use crate::drivers::prober::MAX_PROBES;

    /// The answers to probes of these backends, in the order of addresses.
    async fn answers(backends: &[SocketAddr]) -> BTreeMap<SocketAddr, bool> {
        let (inputs, mut reports) = mpsc::channel(4);
        let driver = FailoverDriver::new(inputs, Duration::from_secs(5));
        for backend in backends {
            driver.probe(*backend);
        }
        drop(driver);
        let mut answers = BTreeMap::new();
        while let Some(report) = reports.recv().await {
            let Input::Probed {
                backend,
                is_answered,
            } = report
            else {
                panic!("{report:?}")
            };
            assert_eq!(answers.insert(backend, is_answered), None);
        }
        answers
    }

    #[tokio::test]
    async fn probe_is_answered_only_where_somebody_listens() {
        let local = (IpAddr::from(Ipv4Addr::LOCALHOST), 0);
        let listening = TcpListener::bind(local).await.expect("a port");
        let closed = TcpListener::bind(local).await.expect("a port");
        let address = |listener: &TcpListener| listener.local_addr().expect("an address");
        let (answered, refused) = (address(&listening), address(&closed));
        drop(closed);
        assert_eq!(
            answers(&[answered, refused]).await,
            BTreeMap::from([(answered, true), (refused, false)])
        );
    }

    #[tokio::test]
    async fn more_probes_than_run_at_once_are_all_answered() {
        let local = (IpAddr::from(Ipv4Addr::LOCALHOST), 0);
        let mut listeners = Vec::new();
        for _ in 0..MAX_PROBES + 10 {
            listeners.push(TcpListener::bind(local).await.expect("a port"));
        }
        let backends: Vec<SocketAddr> = listeners
            .iter()
            .map(|listener| listener.local_addr().expect("an address"))
            .collect();
        let answers = answers(&backends).await;
        assert_eq!(answers.len(), backends.len());
        assert!(answers.values().all(|is_answered| *is_answered));
    }
}
