//! The state shared by the handlers of the agent's debug HTTP.

use std::{sync::Arc, time::Duration};

use axum::extract::FromRef;
use contiv_node::Core;
use contiv_renderer::{ForwardingNeeds, ForwardingOff, InterfaceKind, shared_tables::TableProblem};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use super::{
    attempt_history::{self, AttemptsView},
    error::ApiError,
    recent_flows::RecentFlows,
};
use crate::{
    balance::BalanceCounter,
    counters::ConnectionCounters,
    drivers::{Question, Request},
    flows::Flows,
    health::HealthCheckQuestions,
    logging::LogLevel,
    metrics::Metrics,
    shared_tables::SharedTablesView,
};

/// How long a request waits for the node core, or for a renderer.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// How many pages may follow changes at the same time.
const MAX_PAGE_WATCHERS: usize = 16;

/// The state of handlers.
#[derive(Debug, Clone)]
pub struct Api {
    pub(super) requests: mpsc::Sender<Request>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) health_checks: HealthCheckQuestions,
    pub(super) log_level: LogLevel,
    pub(super) counters: ConnectionCounters,
    pub(super) configuration: Arc<str>,
    pub(super) interface_kind: fn(&str) -> InterfaceKind,
    pub(super) check_forwarding: fn(&ForwardingNeeds) -> Vec<ForwardingOff>,
    pub(super) shared_tables: SharedTablesView,
    pub(super) attempts: AttemptsView,
    /// Room for pages that follow changes.
    pub(super) page_watchers: Arc<Semaphore>,
    pub(super) flows: Flows,
    pub(super) balance: BalanceCounter,
    pub(super) recent_flows: RecentFlows,
}

impl Api {
    /// Sends queries to the node through `requests`, and to the server of health checks.
    pub fn new(
        requests: mpsc::Sender<Request>,
        metrics: Arc<Metrics>,
        health_checks: HealthCheckQuestions,
        log_level: LogLevel,
        counters: ConnectionCounters,
    ) -> Self {
        let interface_kind: fn(&str) -> InterfaceKind = |_| InterfaceKind::Other;
        let configuration = "".into();
        let flows = Flows::new(requests.clone());
        let balance = BalanceCounter::new(requests.clone());
        Self {
            recent_flows: RecentFlows::new(flows.clone()),
            flows,
            balance,
            requests,
            metrics,
            health_checks,
            log_level,
            counters,
            configuration,
            interface_kind,
            check_forwarding: |_| Vec::new(),
            shared_tables: watch::channel(Arc::default()).1,
            attempts: AttemptsView::none(),
            page_watchers: Arc::new(Semaphore::new(MAX_PAGE_WATCHERS)),
        }
    }

    /// Attaches pods only by interfaces that can be those of pods by `interface_kind`.
    #[must_use]
    pub fn with_interfaces(self, interface_kind: fn(&str) -> InterfaceKind) -> Self {
        Self {
            interface_kind,
            ..self
        }
    }

    /// Reads whether the machine forwards packets by `check_forwarding`; otherwise it counts as doing so.
    #[must_use]
    pub fn with_forwarding(
        self,
        check_forwarding: fn(&ForwardingNeeds) -> Vec<ForwardingOff>,
    ) -> Self {
        Self {
            check_forwarding,
            ..self
        }
    }

    /// Shows these readings of the kernel's shared tables; otherwise none of them is read.
    #[must_use]
    pub(crate) fn with_shared_tables(self, shared_tables: SharedTablesView) -> Self {
        Self {
            shared_tables,
            ..self
        }
    }

    /// Begins to read the counters again and again if something counts; otherwise there is no history of attempts.
    #[must_use]
    pub(crate) fn with_attempts(self, is_counted: bool) -> Self {
        let attempts = if is_counted {
            attempt_history::start(self.requests.clone(), self.counters.clone())
        } else {
            self.attempts
        };
        Self { attempts, ..self }
    }

    /// The connections through services.
    #[cfg(feature = "otlp")]
    pub(crate) const fn flows(&self) -> &Flows {
        &self.flows
    }

    /// What is wrong with the kernel's shared tables.
    pub(super) fn table_problems(&self) -> Vec<TableProblem> {
        self.shared_tables.borrow().problems.clone()
    }

    /// The settings of the machine that keep packets of services from being forwarded, as of now.
    pub(super) async fn forwarding_off(&self) -> Result<Vec<ForwardingOff>, ApiError> {
        let needs = self.query(Core::forwarding_needs).await?;
        Ok((self.check_forwarding)(&needs))
    }

    /// Serves this file as the effective configuration.
    #[must_use]
    pub fn with_configuration(self, toml: String) -> Self {
        Self {
            configuration: toml.into(),
            ..self
        }
    }

    /// Whether every renderer has applied its first snapshot; false too if the node does not answer.
    pub(crate) async fn is_ready(&self) -> bool {
        self.query(Core::is_ready).await.unwrap_or(false)
    }

    /// Asks the node about its state.
    pub(super) async fn query<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Core) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let (question, answer) = Question::new(ask);
        self.request(Request::Ask(question), answer).await
    }

    /// Sends a request to the node, and waits for its answer.
    pub(super) async fn request<T>(
        &self,
        request: Request,
        answer: oneshot::Receiver<T>,
    ) -> Result<T, ApiError> {
        let exchange = async {
            self.requests
                .send(request)
                .await
                .map_err(|_| ApiError::Stopping)?;
            answer.await.map_err(|_| ApiError::Stopping)
        };
        tokio::time::timeout(ANSWER_LIMIT, exchange)
            .await
            .map_err(|_| ApiError::NodeBusy)?
    }
}

impl FromRef<Api> for LogLevel {
    fn from_ref(api: &Api) -> Self {
        api.log_level.clone()
    }
}
