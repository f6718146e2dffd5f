//! `contiv status`

mod overview;
mod text;

use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Outcome, Terminal,
    agent_argument::AgentArgument,
    listing::Output,
    views::CountersView,
    watch::{Frame, WatchArgument, size},
};
use overview::{Overview, SERVICES};

/// The number of newest events that the latency is computed from.
const EVENTS: usize = 200;
/// The renderer whose elements count connections.
const COUNTING_RENDERER: &str = "nftables";

/// Print the state of the running agent, on one screen
///
/// Exit codes: 0 it is healthy; 1 it does not answer, or needs attention: it is not ready, the store cannot be watched, a
/// renderer fails, objects are in quarantine, two services ask for one address, or deletions are held; 2 wrong usage.
#[derive(Debug, Args)]
pub(super) struct Status {
    /// Output format; wide cuts nothing, name is that of the node
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,

    #[command(flatten)]
    watch: WatchArgument,

    #[command(flatten)]
    agent: AgentArgument,
}

/// The answers of the agent as JSON.
struct AgentState {
    status: Value,
    sizes: Value,
    renderers: Value,
    quarantine: Value,
    counters: Result<Value, String>,
    history: Value,
}

impl Status {
    pub(super) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        self.watch.run(terminal, || self.read_frame())
    }

    fn read_frame(&self) -> anyhow::Result<Frame> {
        let answers = self.read_state()?;
        let overview = answers.read()?;
        let size = size().filter(|_| self.output == Output::Table);
        let out = match self.output {
            Output::Table | Output::Wide => text::render(&overview, size, jiff::Timestamp::now()),
            Output::Json => format!("{:#}\n", answers.value()),
            Output::Yaml => serde_saphyr::to_string(&answers.value())?,
            Output::Name => format!("{}\n", overview.status.node),
        };
        Ok(Frame { out, err: String::new(), is_good: overview.is_good() })
    }

    fn read_state(&self) -> anyhow::Result<AgentState> {
        let get = |path: &str| self.agent.get::<Value>(path);
        let renderers = get("/renderers")?;
        let runs_nftables =
            renderers.as_array().into_iter().flatten().any(|one| one["name"] == COUNTING_RENDERER);
        Ok(AgentState {
            status: get("/status")?,
            sizes: get("/sizes")?,
            renderers,
            quarantine: get("/quarantine")?,
            // Without its table there are no counters.
            counters: if runs_nftables {
                get(&format!("/counters?top={SERVICES}")).map_err(|error| error.to_string())
            } else {
                Err(format!("connections are not counted: that needs the renderer {COUNTING_RENDERER}"))
            },
            history: get(&format!("/controller/event-history?last={EVENTS}"))?,
        })
    }
}

impl AgentState {
    fn read(&self) -> anyhow::Result<Overview> {
        fn read<'a, T: Deserialize<'a>>(value: &'a Value) -> Result<T, serde_json::Error> {
            T::deserialize(value)
        }
        let (connections, refused) = match &self.counters {
            Ok(value) => {
                let counters: CountersView = read(value)?;
                let served = counters.services.into_iter().filter(|of| of.connections > 0);
                (Ok(served.map(|of| (of.service, of.connections)).collect()), counters.refused)
            }
            Err(error) => (Err(error.clone()), 0),
        };
        Ok(Overview {
            status: read(&self.status)?,
            sizes: read(&self.sizes)?,
            renderers: read(&self.renderers)?,
            quarantine: read(&self.quarantine)?,
            connections,
            refused,
            history: read(&self.history)?,
        })
    }

    /// The JSON form. It has no history, which has its own command.
    fn value(&self) -> Value {
        json!({
            "status": self.status,
            "sizes": self.sizes,
            "renderers": self.renderers,
            "quarantine": self.quarantine,
            "counters": self.counters.as_ref().ok(),
        })
    }
}
