//! The answers of an agent that its state is read from.

use serde::Deserialize;
use serde_json::{Value, json};

use super::overview::{Overview, TOP_SERVICES};
use crate::cli::source::views::CountersView;

/// The number of newest events that the latency is computed from.
const LATENCY_EVENTS: usize = 200;
/// The renderer whose elements count connections.
const COUNTING_RENDERER: &str = "nftables";

/// The reason of attempts that were refused since there was no backend.
const NO_ENDPOINTS: &str = "no-endpoints";

/// The answers of the agent as JSON.
#[derive(Debug)]
pub(super) struct Answers {
    status: Value,
    sizes: Value,
    renderers: Value,
    quarantine: Value,
    warnings: Value,
    counters: Result<Value, String>,
    history: Value,
}

impl Answers {
    /// Asks an agent by GET.
    ///
    /// # Errors
    /// The first one of `get`.
    pub(super) async fn ask(
        mut get: impl AsyncFnMut(&str) -> anyhow::Result<Value>,
    ) -> anyhow::Result<Self> {
        let renderers = get("/renderers").await?;
        let runs_nftables = renderers
            .as_array()
            .into_iter()
            .flatten()
            .any(|one| one["name"] == COUNTING_RENDERER);
        let status = get("/status").await?;
        // An earlier agent has none, and no such path.
        let has_warnings = status["warnings"].as_u64().is_some_and(|count| count > 0);
        Ok(Self {
            status,
            sizes: get("/sizes").await?,
            renderers,
            quarantine: get("/quarantine").await?,
            warnings: if has_warnings {
                get("/warnings").await?
            } else {
                json!([])
            },
            // Without its table there are no counters.
            counters: if runs_nftables {
                get(&format!("/counters?top={TOP_SERVICES}"))
                    .await
                    .map_err(|error| error.to_string())
            } else {
                Err(format!(
                    "connections are not counted: that needs the renderer {COUNTING_RENDERER}"
                ))
            },
            history: get(&format!("/controller/event-history?last={LATENCY_EVENTS}")).await?,
        })
    }

    /// # Errors
    /// When an answer is not in the format of this version.
    pub(super) fn read(&self) -> serde_json::Result<Overview> {
        fn read<'a, T: Deserialize<'a>>(value: &'a Value) -> Result<T, serde_json::Error> {
            T::deserialize(value)
        }
        let (connections, refused) = match &self.counters {
            Ok(value) => {
                let counters: CountersView = read(value)?;
                let served = counters
                    .services
                    .into_iter()
                    .filter(|of| of.connections > 0);
                let refused = counters
                    .refused_by
                    .get(NO_ENDPOINTS)
                    .copied()
                    .unwrap_or_default();
                (
                    Ok(served.map(|of| (of.service, of.connections)).collect()),
                    refused,
                )
            }
            Err(error) => (Err(error.clone()), 0),
        };
        Ok(Overview {
            status: read(&self.status)?,
            sizes: read(&self.sizes)?,
            renderers: read(&self.renderers)?,
            quarantine: read(&self.quarantine)?,
            warnings: read(&self.warnings)?,
            connections,
            refused,
            history: read(&self.history)?,
        })
    }

    /// The JSON form. It has no history, which has its own command.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "status": self.status,
            "sizes": self.sizes,
            "renderers": self.renderers,
            "quarantine": self.quarantine,
            "warnings": self.warnings,
            "counters": self.counters.as_ref().ok(),
        })
    }
}
