//! Traces the same flow in the kernel, and compares.

use std::{fmt, thread, time::Duration};

use anyhow::Context;
use contiv_model::{
    Flow, Trace,
    trace::{Client, Verdict},
};
use contiv_node::Explanation;
use contiv_renderer::{
    nftables::{self, Evaluation, Inspector, OtherChain},
    route::{RouteOptions, RouteVerifier},
};
use serde::Serialize;

use super::desired::Source;
use crate::cli::source::views::RendererStateView;

/// A change may be in progress between the agent and the kernel. It takes milliseconds, unless something is wrong.
const MAX_ATTEMPTS: usize = 5;
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// The renderer of the compared table.
const RENDERER: &str = "nftables";

/// The desired and the actual outcome, and a description of every difference.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    desired: Explanation,
    kernel: Evaluation,
    differences: Vec<String>,
    /// What to do about them; empty if there are none.
    #[serde(skip_serializing_if = "String::is_empty")]
    advice: String,
    /// Base chains of other tables. It is only known that they exist and whether they may drop packets.
    others: Vec<OtherChain>,
}

/// Compares until both agree, or for about a second.
pub(super) fn compare(source: &Source, flow: &Flow) -> anyhow::Result<Comparison> {
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

fn compare_once(source: &Source, flow: &Flow) -> anyhow::Result<Comparison> {
    let desired = source.trace(flow)?;
    let mut inspector = Inspector::open().context("failed to read the state of the kernel")?;
    let kernel = inspector
        .evaluate(flow)
        .context("failed to read the state of the kernel")?;
    let mut differences = inspector.rules().to_vec();
    differences.extend(nftables::differences(&desired.trace, &kernel));
    let missing_route = missing_route(&desired.trace, flow)?;
    let mut advice = Vec::new();
    if !differences.is_empty() {
        advice.push(table_advice(source.renderers()?.as_deref()));
    }
    if missing_route.is_some() {
        advice.push(
            "No resync makes that route: contiv does not program it; give this node one, as a default route."
                .to_owned(),
        );
    }
    differences.extend(missing_route);
    let others = inspector
        .others(flow.to())
        .context("failed to read the state of the kernel")?;
    Ok(Comparison {
        desired,
        kernel,
        differences,
        advice: advice.join("\n"),
        others,
    })
}

/// What to do about a table that differs, given the renderers of the agent; none if the desired state is that of manifests.
fn table_advice(renderers: Option<&[RendererStateView]>) -> String {
    let Some(renderers) = renderers else {
        return "If the agent of this node has this input and these settings, something else changed the table inet contiv: \
                `contiv resync` makes it right. If not, the agent needs the input first."
            .to_owned();
    };
    let Some(renderer) = renderers.iter().find(|renderer| renderer.name == RENDERER) else {
        return format!(
            "The agent does not run the renderer {RENDERER} (its setting `renderers`): no resync changes this table."
        );
    };
    match &renderer.last_error {
        Some(last) if renderer.failures > 0 => format!(
            "The renderer {RENDERER} of the agent fails, and a resync fails as well until this is mended: {}",
            last.error
        ),
        _ if renderer.state == "slow" => {
            format!(
                "The renderer {RENDERER} of the agent is busy for more than 10 s; see `contiv status`, and try again."
            )
        }
        _ => "Something else changed the table inet contiv. `contiv resync` makes it right."
            .to_owned(),
    }
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
        let Self {
            desired,
            kernel,
            differences,
            advice,
            others,
        } = self;
        write!(f, "DESIRED\n{desired}\nIN THE KERNEL\n{kernel}\n")?;
        if !others.is_empty() {
            writeln!(
                f,
                "OTHER TABLES that packets may pass, before and after contiv's:"
            )?;
            others
                .iter()
                .try_for_each(|other| writeln!(f, "  {other}"))?;
            writeln!(f)?;
        }
        if self.agrees() {
            return writeln!(f, "NO DIFFERENCE: the kernel has the desired state");
        }
        writeln!(f, "DIFFERENCES: {}", differences.len())?;
        differences
            .iter()
            .try_for_each(|difference| writeln!(f, "- {difference}"))?;
        writeln!(f, "{advice}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn resync_is_advised_only_where_it_helps() {
        let renderer = |name: &str, state: &str, failures: u32| {
            let error = json!({"at": "2026-01-01T00:00:00Z", "error": "no CAP_NET_ADMIN"});
            let value = json!({
                "name": name, "state": state, "applied_revision": 1, "failures": failures, "last_error": error,
            });
            serde_json::from_value::<RendererStateView>(value).unwrap()
        };
        for (renderers, expected, helps) in [
            (
                Some(vec![renderer("nftables", "idle", 0)]),
                "Something else changed",
                true,
            ),
            (None, "If the agent of this node has this input", true),
            (
                Some(vec![renderer("route", "idle", 0)]),
                "does not run the renderer nftables",
                false,
            ),
            (
                Some(vec![renderer("nftables", "retrying", 2)]),
                "mended: no CAP_NET_ADMIN",
                false,
            ),
            (
                Some(vec![renderer("nftables", "slow", 0)]),
                "busy for more than 10 s",
                false,
            ),
        ] {
            let advice = table_advice(renderers.as_deref());
            assert!(advice.contains(expected), "{advice}");
            assert_eq!(
                advice.contains("`contiv resync` makes it right"),
                helps,
                "{advice}"
            );
        }
    }
}
