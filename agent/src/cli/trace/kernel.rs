//! Traces the same flow in the kernel, and compares.

use std::{fmt, thread, time::Duration};

use anyhow::Context;
use contiv_model::{
    Flow, Trace,
    trace::{Client, Verdict},
};
use contiv_renderer::{
    nftables::{Evaluation, Inspector, OtherChain, differences},
    route::{RouteOptions, RouteVerifier},
};
use serde::Serialize;

use super::desired::Source;

/// A change may be in progress between the agent and the kernel. It takes milliseconds, unless something is wrong.
const MAX_ATTEMPTS: usize = 5;
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// The desired and the actual outcome, and a description of every difference.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    desired: Trace,
    kernel: Evaluation,
    differences: Vec<String>,
    /// Base chains of other tables. It is only known that they exist and whether they may drop packets.
    others: Vec<OtherChain>,
}

/// Compares until both agree, or for about a second.
pub(super) fn compare(source: &Source<'_>, flow: &Flow) -> anyhow::Result<Comparison> {
    let mut tries = 1;
    loop {
        let comparison = compare_once(source, flow)?;
        if comparison.agrees() || tries == MAX_ATTEMPTS {
            return Ok(comparison);
        }
        tries += 1;
        thread::sleep(RETRY_INTERVAL);
    }
}

fn compare_once(source: &Source<'_>, flow: &Flow) -> anyhow::Result<Comparison> {
    let desired = source.trace(flow)?;
    let mut inspector = Inspector::open().context("failed to read the state of the kernel")?;
    let kernel = inspector.evaluate(flow).context("failed to read the state of the kernel")?;
    let mut all = inspector.rules().to_vec();
    all.extend(differences(&desired, &kernel));
    all.extend(missing_route(&desired, flow)?);
    let others = inspector.others(flow.to()).context("failed to read the state of the kernel")?;
    Ok(Comparison { desired, kernel, differences: all, others })
}

/// Reports a missing route: a connection of this node itself reaches the table only after the kernel has found a route.
fn missing_route(desired: &Trace, flow: &Flow) -> anyhow::Result<Option<String>> {
    let is_translated = matches!(desired.verdict, Verdict::Backends(_));
    if !is_translated || desired.client != Client::Node {
        return Ok(None);
    }
    let to = flow.to();
    let has_route = RouteVerifier::new(RouteOptions::default())
        .has_route(to)
        .context("failed to read the state of the kernel")?;
    Ok((!has_route).then(|| {
        format!(
            "the connection should reach a backend, but this node itself has no route to {to}, or one that leads nowhere \
             (`ip route get {to}`): it fails before it is translated"
        )
    }))
}

impl Comparison {
    pub(super) const fn agrees(&self) -> bool {
        self.differences.is_empty()
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { desired, kernel, differences, others } = self;
        write!(f, "DESIRED\n{desired}\nIN THE KERNEL\n{kernel}\n")?;
        if !others.is_empty() {
            writeln!(f, "OTHER TABLES that packets may pass, before and after contiv's:")?;
            others.iter().try_for_each(|other| writeln!(f, "  {other}"))?;
            writeln!(f)?;
        }
        if self.agrees() {
            return writeln!(f, "NO DIFFERENCE: the kernel has the desired state");
        }
        writeln!(f, "DIFFERENCES: {}", differences.len())?;
        differences.iter().try_for_each(|difference| writeln!(f, "- {difference}"))?;
        writeln!(
            f,
            "Something else changed the table inet contiv or a route, or the agent could not: see its /renderers. `contiv \
             resync` makes it right."
        )
    }
}
