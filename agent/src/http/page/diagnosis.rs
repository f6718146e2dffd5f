//! Why a connection fails, and where it goes: the form, and the steps of the connection's way.

use std::net::{IpAddr, SocketAddr};

use contiv_model::{Flow, InterfaceName, Protocol, ServiceId};
use contiv_node::{
    Core, Explanation,
    diagnosis::{Certainty, Diagnosis, StepState},
};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    super::{Api, error::ApiError},
    layout::Page,
};

/// What a form asks, as it was typed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct FlowForm {
    pub(super) from: String,
    pub(super) interface: String,
    /// An address, or NAMESPACE/NAME of a service.
    pub(super) to: String,
    pub(super) port: String,
    pub(super) protocol: String,
    /// Set if backends are to be tried.
    pub(super) probe: Option<String>,
}

impl FlowForm {
    /// The connection that it asks about; the error says which field is wrong.
    pub(super) async fn flow(&self, api: &Api) -> Result<Flow, String> {
        let address = |text: &str| text.trim().parse::<IpAddr>();
        let from = address(&self.from).map_err(|_| {
            format!(
                "from: {:?} is no address; enter one like 10.244.1.5",
                self.from
            )
        })?;
        let to = match address(&self.to) {
            Ok(to) => to,
            Err(_) => service_address(api, self.to.trim(), from).await?,
        };
        let port = self.port.trim().parse().map_err(|_| {
            format!(
                "port: {:?} is no port; enter a number from 1 to 65535",
                self.port
            )
        })?;
        let protocol: Protocol = match self.protocol.as_str() {
            "" => Protocol::Tcp,
            name => name.parse().map_err(|error| format!("protocol: {error}"))?,
        };
        let flow = Flow::new(from, SocketAddr::new(to, port), protocol)
            .map_err(|error| error.to_string())?;
        let interface = self.interface.trim();
        if interface.is_empty() {
            return Ok(flow);
        }
        let interface: InterfaceName = interface
            .parse()
            .map_err(|error| format!("interface: {error}"))?;
        Ok(flow.by_interface(interface))
    }
}

/// The address of a service for clients of this family.
async fn service_address(api: &Api, text: &str, from: IpAddr) -> Result<IpAddr, String> {
    let (namespace, name) = text.split_once('/').ok_or_else(|| {
        format!(
            "to: {text:?} is no address; enter one like 10.96.0.10, or a service as NAMESPACE/NAME"
        )
    })?;
    let id = ServiceId::new(namespace, name);
    let query = move |core: &Core| core.service(&id);
    let service = api.query(query).await.map_err(|error| error.to_string())?;
    let service = service.ok_or_else(|| format!("to: no service {text} is served here"))?;
    let mut addresses = service.addresses();
    addresses
        .find(|address| address.is_ipv4() == from.is_ipv4())
        .ok_or_else(|| format!("to: service {text} has no address of the family of {from}"))
}

/// The form, filled in as it was.
pub(super) fn form(form: &FlowForm) -> Markup {
    html! {
        form method="get" action="/page/why" {
            label { "from" input name="from" value=(form.from) placeholder="10.244.1.5" required; }
            label { "to" input name="to" value=(form.to) placeholder="10.96.0.10 or shop/web" required; }
            label.short { "port" input name="port" type="number" min="1" max="65535" value=(form.port) required; }
            label.short {
                "protocol"
                select name="protocol" {
                    @for protocol in ["tcp", "udp", "sctp"] { option selected[protocol == form.protocol] { (protocol) } }
                }
            }
            @if !form.interface.is_empty() { label.short { "interface" input name="interface" value=(form.interface); } }
            label.check { input type="checkbox" name="probe" value="true" checked[form.probe.is_some()]; "try the backends once" }
            button { "why" }
        }
    }
}

/// The page with an answer; without one, why there is none. `not_probed`: why backends were not tried, though that was asked.
pub(super) fn page(
    asked: &FlowForm,
    answer: Option<&Result<(Diagnosis, Option<Explanation>), String>>,
    not_probed: Option<&ApiError>,
) -> Page {
    let main = html! {
        h1 { "Why does a connection fail? Where does it go?" }
        section {
            (form(asked))
            @if let Some(reason) = not_probed { (try_again(asked, reason)) }
            @if let Some(Err(problem)) = answer { p.bad role="alert" { (problem) } }
        }
        @if let Some(Ok((diagnosis, explanation))) = answer {
            (diagnosed(diagnosis))
            @if let Some(explanation) = explanation { (traced(explanation)) }
        }
    };
    Page::new("Why does a connection fail? – contiv", &main)
}

/// Why backends were not tried, and a button for it where it would help.
fn try_again(asked: &FlowForm, reason: &ApiError) -> Markup {
    html! {
        div.cause.warn {
            p { strong { "The backends were not tried." } }
            @if matches!(reason, ApiError::NotLoopback) {
                p { "That is only for browsers on this node; run " code { "contiv why --probe" } " there." }
            } @else {
                p { "This page was opened by a link from elsewhere, and trying sends packets to backends." }
                form method="get" action="/page/why" {
                    @for (name, value) in [
                        ("from", &asked.from), ("interface", &asked.interface), ("to", &asked.to),
                        ("port", &asked.port), ("protocol", &asked.protocol),
                    ] { input type="hidden" name=(name) value=(value); }
                    input type="hidden" name="probe" value="true";
                    button { "try the backends once" }
                }
            }
        }
    }
}

/// The cause, and the steps.
fn diagnosed(diagnosis: &Diagnosis) -> Markup {
    html! {
        section #steps {
            h2 { @if let Some(flow) = &diagnosis.flow { (flow) } @else { "The connection" } }
            @match &diagnosis.cause {
                None => div.cause.good {
                    p { strong { "No cause found" } }
                    p { "Nothing that could be looked at stops this connection." }
                },
                Some(cause) => {
                    @let is_sure = cause.certainty != Certainty::Possible;
                    div.cause.bad[is_sure].warn[!is_sure] {
                        p { strong { @if !is_sure { "Perhaps: " } (cause.text) } }
                        p { "Do: " (cause.advice) }
                    }
                }
            }
            ol.steps {
                @for step in &diagnosis.steps {
                    @let (class, word) = mark(step.state);
                    li class=(class) { b { (step.name) } span.dim { (word) } div { (step.text) } }
                }
            }
            @if !diagnosis.others.is_empty() {
                h3 { "Also found" }
                ul { @for other in &diagnosis.others { li { (other.text) ". Do: " (other.advice) } } }
            }
        }
    }
}

/// The class of a step for its sign, and the state in a word.
const fn mark(state: StepState) -> (&'static str, &'static str) {
    match state {
        StepState::Ok => ("ok", "ok"),
        StepState::Fails => ("fails", "fails here"),
        StepState::Unclear => ("unclear", "unclear"),
        StepState::Unknown => ("unknown", "not known"),
    }
}

/// Where the connection goes: each line of the text begins with its label.
fn traced(explanation: &Explanation) -> Markup {
    let text = explanation.to_string();
    let lines = text.lines().map(|line| {
        // Labels are padded to a width that none of them has.
        let (label, sentence) = line.split_at_checked(10).unwrap_or((line, ""));
        (label.trim(), sentence)
    });
    html! {
        section #trace {
            h2 { "Where it goes" }
            ol.steps { @for (label, sentence) in lines { li.plain { b { (label) } div { (sentence) } } } }
        }
    }
}
