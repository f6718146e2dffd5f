//! Explains the path of a packet.

use std::{
    net::{IpAddr, SocketAddr},
    time::Instant,
};

use axum::{
    Json,
    extract::{Query as Arguments, State, rejection::QueryRejection},
    response::{IntoResponse, Response},
};
use contiv_model::{
    Flow, InterfaceName, Protocol, Trace, trace as trace_flow,
    trace::{Client, Verdict},
};
use contiv_node::{Caveat, Core, Explanation};
use contiv_renderer::ForwardingOff;
use serde::Deserialize;

use super::{Api, error::ApiError};

/// The ends of a connection, and how to answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlowArguments {
    from: IpAddr,
    /// The interface where its packets arrive.
    interface: Option<String>,
    to: IpAddr,
    port: u16,
    protocol: ProtocolName,
    #[serde(default)]
    pub(super) format: Format,
    /// Backends are to be tried; of `/why` only.
    #[serde(default)]
    pub(super) probe: bool,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ProtocolName {
    #[serde(alias = "TCP")]
    Tcp,
    #[serde(alias = "UDP")]
    Udp,
    #[serde(alias = "SCTP")]
    Sctp,
}

impl From<ProtocolName> for Protocol {
    fn from(name: ProtocolName) -> Self {
        match name {
            ProtocolName::Tcp => Self::Tcp,
            ProtocolName::Udp => Self::Udp,
            ProtocolName::Sctp => Self::Sctp,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Format {
    #[default]
    Json,
    Text,
}

pub(super) async fn trace(
    State(api): State<Api>,
    arguments: Result<Arguments<FlowArguments>, QueryRejection>,
) -> Result<Response, ApiError> {
    let (flow, arguments) = flow(arguments, "trace")?;
    if arguments.probe {
        return Err(bad_request("probe is an argument of /why", "trace"));
    }
    let explanation = explain(&api, &flow).await?;
    Ok(match arguments.format {
        Format::Json => Json(explanation).into_response(),
        Format::Text => explanation.to_string().into_response(),
    })
}

fn bad_request(error: &str, endpoint: &str) -> ApiError {
    ApiError::BadRequest(format!(
        "{error}; as in /{endpoint}?from=10.244.1.5&to=10.96.0.1&port=443&protocol=tcp"
    ))
}

/// The connection that the arguments of a request name.
pub(super) fn flow(
    arguments: Result<Arguments<FlowArguments>, QueryRejection>,
    endpoint: &str,
) -> Result<(Flow, FlowArguments), ApiError> {
    let Arguments(arguments) =
        arguments.map_err(|rejection| bad_request(&rejection.body_text(), endpoint))?;
    let to = SocketAddr::new(arguments.to, arguments.port);
    let flow = Flow::new(arguments.from, to, arguments.protocol.into())
        .map_err(|error| bad_request(&error.to_string(), endpoint))?;
    let Some(name) = &arguments.interface else {
        return Ok((flow, arguments));
    };
    let interface: InterfaceName = name
        .parse()
        .map_err(|error| bad_request(&format!("interface: {error}"), endpoint))?;
    Ok((flow.by_interface(interface), arguments))
}

/// The outcome of a connection, with all that the agent knows of it.
pub(super) async fn explain(api: &Api, flow: &Flow) -> Result<Explanation, ApiError> {
    // The node returns its snapshot, and later what it knows about the outcome; the search through all services runs here.
    let snapshot = api.query(Core::snapshot).await?;
    let snapshot = snapshot.ok_or(ApiError::NotReady(
        "the store has not been read yet; see /readiness",
    ))?;
    let trace = trace_flow(&snapshot, flow);
    let off = if is_forwarded(&trace) {
        forwarding_off(api, flow).await?
    } else {
        None
    };
    let mut explanation = api
        .query(move |core| core.explain(trace, Instant::now()))
        .await?;
    explanation.caveats.extend(off.map(Caveat::ForwardingOff));
    Ok(explanation)
}

/// True if the packets come in from elsewhere and may leave to elsewhere, be it to a pod of this node.
fn is_forwarded(trace: &Trace) -> bool {
    let leaves = match &trace.verdict {
        Verdict::Backends(delivery) => delivery.candidates.iter().any(|candidate| !candidate.stays),
        Verdict::Routed | Verdict::Egress => true,
        Verdict::Rejected(_) | Verdict::Dropped(_) | Verdict::Untouched => false,
    };
    leaves && trace.client != Client::Node
}

/// The setting for packets of the flow's family, by its interface if that is known.
async fn forwarding_off(api: &Api, flow: &Flow) -> Result<Option<ForwardingOff>, ApiError> {
    let family = if flow.from().is_ipv4() {
        "IPv4"
    } else {
        "IPv6"
    };
    let concerns = |off: &ForwardingOff| {
        let by_another =
            matches!((&off.interface, flow.interface()), (Some(off), Some(flow)) if off != flow);
        off.ip_family == family && !by_another
    };
    Ok(api.forwarding_off().await?.into_iter().find(concerns))
}
