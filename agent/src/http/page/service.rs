//! The page of a service: its addresses, attempts, backends, and what is said about it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use contiv_model::{
    Backend, BackendState, ContivService, NotServed, Protocol, ServiceId, ServicePort,
    TrafficPolicy, UnservedService, processor::EndpointPlace,
};
use contiv_node::{FailingBackend, Quarantined, Record, Warning, plural::counted};
use contiv_renderer::packet_path::{BackendFlows, NodeInspector, PathError};
use jiff::Timestamp;
use maud::{Markup, html};

use super::{
    super::attempt_history::{AttemptHistory, MAX_SERVICES},
    diagnosis::{FlowForm, form},
    flows::flows_path,
    layout::{Page, Tone, facts, in_url, joined, table, time, toned},
    overview::{EVENT_TITLES, WARNING_TITLES, event, named_service, reason, warning},
    plot::{as_number, attempts, share},
    services::{counting, problems},
};
use crate::{counters::RefusedConnections, health::ago};

/// How many backends of a port are shown.
const MAX_BACKENDS: usize = 500;
/// How often conntrack is listed, each time for one address and port.
const MAX_LISTINGS: usize = 16;
const MAX_ITEMS: usize = 32;

/// The flows of each port of a service, by backend.
pub(super) type PortFlows = Vec<BTreeMap<SocketAddr, BackendFlows>>;

/// What the page shows.
pub(super) struct ServiceView {
    pub(super) id: ServiceId,
    /// None if it is not served.
    pub(super) service: Option<Arc<ContivService>>,
    pub(super) unserved: Option<UnservedService>,
    pub(super) places: BTreeMap<IpAddr, EndpointPlace>,
    pub(super) attempts: Arc<AttemptHistory>,
    /// The clients that were refused lately.
    pub(super) refused: Vec<RefusedConnections>,
    /// Or why they are not known.
    pub(super) flows: Result<PortFlows, String>,
    /// Its backends that are out.
    pub(super) failing: Vec<FailingBackend>,
    pub(super) quarantine: Vec<Quarantined>,
    pub(super) warnings: Vec<Warning>,
    /// There are more quarantined objects and warnings than were searched for these.
    pub(super) is_search_cut: bool,
    /// Its events, newest first.
    pub(super) history: Vec<Record>,
    pub(super) now: Timestamp,
}

/// What an object of the quarantine or of a warning has to do with a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServiceMention {
    /// It is the service, or the object of another kind with its name.
    Named,
    /// It is an endpoint slice, whose generated name may come from the service. What it says itself may not be readable.
    PerhapsSlice,
}

/// The letters and the length of what Kubernetes adds to a name to generate another one.
const GENERATED_LETTERS: &str = "bcdfghjklmnpqrstvwxz2456789";
const GENERATED_LENGTH: usize = 5;

impl ServiceMention {
    /// That of an object, which is given as `KIND NAMESPACE/NAME`; none if it has nothing to do with the service.
    pub(super) fn of(object: Option<&str>, id: &ServiceId) -> Option<Self> {
        let (kind, named) = object?.split_once(' ')?;
        let (namespace, name) = named.split_once('/')?;
        let rest = name
            .strip_prefix(&*id.name)
            .filter(|_| *namespace == *id.namespace)?;
        if rest.is_empty() {
            return Some(Self::Named);
        }
        let generated = rest.strip_prefix('-')?;
        let is_generated = generated.len() == GENERATED_LENGTH
            && generated
                .chars()
                .all(|letter| GENERATED_LETTERS.contains(letter));
        (is_generated && kind.eq_ignore_ascii_case("endpointslice")).then_some(Self::PerhapsSlice)
    }
}

/// Counts the connections of conntrack to each port of a service by backend. May block.
///
/// # Errors
/// When the kernel cannot be queried, or would have to be too often; as text.
pub(super) fn read_flows(service: &ContivService) -> Result<PortFlows, String> {
    let addresses: Vec<IpAddr> = service.addresses().collect();
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let any = any.map(|any| Some(any).filter(|any| service.is_in_family_of(*any)));
    let destinations = |port: &ServicePort| {
        let number = port.port;
        let at_addresses = addresses.iter().map(|address| (*address, number).into());
        let at_node = |node_port| {
            any.iter()
                .flatten()
                .map(move |any| (*any, node_port).into())
        };
        let at_node = port.node_port.into_iter().flat_map(at_node);
        at_addresses.chain(at_node).collect::<Vec<SocketAddr>>()
    };
    let listings = service.ports.iter().map(|port| destinations(port).len());
    if listings.sum::<usize>() > MAX_LISTINGS {
        return Err(format!(
            "the service has more than {MAX_LISTINGS} pairs of an address and a port"
        ));
    }
    let mut inspector = NodeInspector::open().map_err(|error| error.to_string())?;
    let mut of_port = |port: &ServicePort| {
        let mut flows: BTreeMap<SocketAddr, BackendFlows> = BTreeMap::new();
        for destination in destinations(port) {
            for (backend, counted) in inspector.flows_by_backend(port.protocol, destination)? {
                let of_backend = flows.entry(backend).or_default();
                of_backend.open += counted.open;
                of_backend.ended += counted.ended;
                of_backend.unanswered += counted.unanswered;
            }
        }
        Ok(flows)
    };
    let flows: Result<PortFlows, PathError> = service.ports.iter().map(&mut of_port).collect();
    flows.map_err(|error| error.to_string())
}

impl ServiceView {
    /// True if nothing is known of such a service.
    pub(super) fn is_unknown(&self) -> bool {
        let is_it = |entry: &Quarantined| {
            let named = entry.object.as_deref().and_then(named_service);
            named.as_ref() == Some(&self.id)
        };
        self.service.is_none() && self.unserved.is_none() && !self.quarantine.iter().any(is_it)
    }

    /// What is wrong with the service, as in the list, and that no attempt of now is answered.
    fn problems(&self, service: &ContivService) -> Vec<String> {
        let mut found = problems(service, &self.attempts);
        let flows = self.flows.iter().flatten();
        for (port, flows) in service.ports.iter().zip(flows) {
            let answered: usize = flows.values().map(|it| it.open + it.ended).sum();
            let unanswered: usize = flows.values().map(|it| it.unanswered).sum();
            // One way may be all that a client of UDP wants.
            if unanswered > 0 && answered == 0 && port.protocol != Protocol::Udp {
                let (number, protocol) = (port.port, port.protocol);
                found.push(format!("{number}/{protocol}: no backend answers any of the last connections ({unanswered})"));
            }
        }
        found
    }

    pub(super) fn render(&self) -> Page {
        let main = html! {
            div #head data-live {
                p.hint { a href="/#services" { "Services" } " / " a href={ "/?namespace=" (in_url(&self.id.namespace)) "#services" } { (self.id.namespace) } }
                (self.head())
            }
            @if let Some(service) = &self.service {
                (self.attempts())
                (self.backends(service))
                section #why { h2 { "Why does a connection to it fail?" } (form(&asked(service))) }
                (addresses(service))
            }
            (self.notes())
            section #events data-live {
                h2 { "Its events" }
                @if self.history.is_empty() { p { "None that is remembered." } } @else {
                    (table(&EVENT_TITLES, &self.history.iter().map(event).collect::<Vec<_>>()))
                }
                p.hint { "An event names the first 20 services that it changed." }
            }
        };
        Page::new(&format!("{} – contiv", self.id), &main)
    }

    fn head(&self) -> Markup {
        let found = self.service.as_ref().map(|service| self.problems(service));
        let (word, tone) = match &found {
            Some(problems) if problems.is_empty() => ("served", Tone::Good),
            Some(_) => ("served, with problems", Tone::Warning),
            None => ("not served", Tone::Warning),
        };
        let why = match (&self.unserved, self.is_unknown()) {
            (Some(unserved), _) => Some(unserved.not_served.to_string()),
            (None, true) if self.is_search_cut => Some(
                "it is not served; whether it is stored is not known: not all of the quarantine was searched".to_owned(),
            ),
            (None, true) => Some("no such service is stored".to_owned()),
            (None, false) if found.is_none() => {
                Some("it cannot be used as it is stored: see below".to_owned())
            }
            (None, false) => None,
        };
        let is_by_design = self
            .unserved
            .as_ref()
            .is_some_and(|it| it.not_served != NotServed::NoAddress);
        let tone = if is_by_design { Tone::Plain } else { tone };
        html! {
            h1 { (self.id) " " span.state.(tone.class()) { (word) } }
            @if let Some(why) = why { p { (why) } }
            @if let Some(problems) = found.filter(|problems| !problems.is_empty()) {
                section #problems.warn { ul { @for problem in &problems { li { (problem) } } } }
            }
        }
    }

    fn attempts(&self) -> Markup {
        let total = self
            .service
            .as_ref()
            .map(|service| self.attempts.totals(service));
        let reasons = total.iter().flat_map(|total| &total.refused_by);
        let reasons: Vec<String> = reasons
            .map(|(reason, count)| format!("{count} {}", reason.name()))
            .collect();
        let row = |refused: &RefusedConnections| {
            let clients = refused
                .clients
                .iter()
                .map(|client| format!("{} ({})", client.address, client.attempts));
            let mut clients = clients.collect::<Vec<_>>().join(", ");
            if refused.more_clients > 0 {
                clients = format!("{clients} and {} more", refused.more_clients);
            }
            let reasons = refused.refused_by.iter();
            let reasons: Vec<String> = reasons
                .map(|(reason, count)| format!("{count} {}", reason.name()))
                .collect();
            vec![
                html! { (refused.frontend) },
                html! { (reasons.join(", ")) },
                html! { (clients) },
            ]
        };
        html! {
            section #attempts data-live {
                h2 { "Attempts to connect" }
                @match self.attempts.of(&self.id) {
                    Some(minutes) => (attempts(minutes, self.attempts.minutes_known())),
                    None if self.attempts.read.is_ok() => {
                        p.warn { "Not kept by minute: more than " (MAX_SERVICES) " services had attempts in the last hour." }
                    }
                    None => {}
                }
                p.hint { (counting(&self.attempts)) " Served: sent to a backend. Silent: of these, no answer came for 20 seconds or more; not of UDP." }
                @if let Some(total) = total.filter(|_| self.attempts.read.is_ok()) {
                    p.hint {
                        "Since the kernel counts: " (total.connections) " served, " (total.refused) " refused"
                        @if !reasons.is_empty() { " (" (reasons.join(", ")) ")" }
                        ". A frontend starts again when the number of its backends changes."
                    }
                }
                p { a href=(flows_path(&self.id)) { "Recent connections" } }
                @if !self.refused.is_empty() {
                    h3 { "Refused" }
                    (table(
                        &["frontend", "since the kernel counts", "clients of the last two minutes (attempts)"],
                        &self.refused.iter().map(row).collect::<Vec<_>>(),
                    ))
                }
            }
        }
    }

    fn backends(&self, service: &ContivService) -> Markup {
        html! {
            section #backends data-live {
                h2 { "Backends" }
                @for (number, port) in service.ports.iter().enumerate() {
                    h3 { (port.port) "/" (port.protocol) @if !port.name.is_empty() { " (" (port.name) ")" } }
                    (self.backends_of(service, port, self.flows.as_ref().ok().and_then(|flows| flows.get(number))))
                }
                p.hint {
                    "Wanted: the share of new connections that this node gives to a backend, by weight"
                    @if service.internal_policy == TrafficPolicy::Local { ", among those of this node" }
                    ". Actual: its share of the connections that are open now."
                    @match &self.flows {
                        Ok(_) => " Silent: connections of which no packet has come back so far.",
                        Err(reason) => { " The connections are not known: " (reason) "." }
                    }
                }
            }
        }
    }

    fn backends_of(
        &self,
        service: &ContivService,
        port: &ServicePort,
        flows: Option<&BTreeMap<SocketAddr, BackendFlows>>,
    ) -> Markup {
        let chosen = match service.internal_policy {
            TrafficPolicy::Cluster => port.cluster_backends(),
            TrafficPolicy::Local => port.local_backends(),
        };
        let flows_of = |backend: &Backend| {
            let known = flows.and_then(|flows| flows.get(&backend.endpoint()));
            known.copied().unwrap_or_default()
        };
        let chosen_endpoints: BTreeSet<SocketAddr> =
            chosen.iter().map(|backend| backend.endpoint()).collect();
        // The weights and the open connections of all backends of a family.
        let sums_of = |is_ipv4: bool| {
            let is_of_it = |backend: &&Backend| backend.address.is_ipv4() == is_ipv4;
            let weights = chosen.iter().copied().filter(is_of_it);
            let open = port.backends.iter().filter(is_of_it);
            (
                weights.map(|it| u64::from(it.weight)).sum::<u64>(),
                open.map(|it| flows_of(it).open).sum::<usize>(),
            )
        };
        let (of_v4, of_v6) = (sums_of(true), sums_of(false));
        let sums = |is_ipv4: bool| if is_ipv4 { of_v4 } else { of_v6 };
        let mut backends: Vec<&Backend> = port.backends.iter().collect();
        let place = |backend: &Backend| self.places.get(&backend.address);
        backends.sort_by_key(|backend| {
            let place = place(backend);
            (
                place.and_then(|place| place.zone.clone()),
                place.map(|place| place.node.clone()),
                backend.endpoint(),
            )
        });
        let row = |backend: &&Backend| {
            let (weights, all) = sums(backend.address.is_ipv4());
            let weight = if chosen_endpoints.contains(&backend.endpoint()) {
                u64::from(backend.weight)
            } else {
                0
            };
            let of_backend = flows_of(backend);
            let place = place(backend);
            vec![
                html! { (backend.endpoint()) },
                html! { @if let Some(place) = place { (place.node) } @if backend.local { " (this node)" } },
                html! { @if let Some(zone) = place.and_then(|place| place.zone.as_ref()) { (zone) } },
                self.state(backend),
                share(as_number(weight), as_number(weights)),
                html! {
                    @if flows.is_none() { "?" } @else if all == 0 { "–" } @else {
                        (share(as_number(of_backend.open as u64), as_number(all as u64)))
                    }
                },
                html! { @if flows.is_some() { (of_backend.open) } @else { "?" } },
                html! { @if flows.is_some() { (toned(Tone::warning_if(of_backend.unanswered as u64), &of_backend.unanswered.to_string())) } @else { "?" } },
            ]
        };
        let rows: Vec<Vec<Markup>> = backends.iter().take(MAX_BACKENDS).map(row).collect();
        let titles = [
            "backend", "node", "zone", "state", "wanted", "actual", "open", "silent",
        ];
        html! {
            @if rows.is_empty() { p.bad { "None: connections are refused." } } @else {
                (self.zones(&backends, &flows_of))
                (table(&titles, &rows))
                @if backends.len() > MAX_BACKENDS { p { "And " (backends.len() - MAX_BACKENDS) " more." } }
            }
        }
    }

    /// How many backends each zone has, and their open connections; nothing with fewer than two zones.
    fn zones(&self, backends: &[&Backend], flows_of: &dyn Fn(&Backend) -> BackendFlows) -> Markup {
        let mut zones: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for backend in backends {
            let place = self.places.get(&backend.address);
            let zone = place.and_then(|place| place.zone.as_deref());
            let (count, open) = zones.entry(zone.unwrap_or("no zone")).or_default();
            *count += 1;
            *open += flows_of(backend).open;
        }
        let zones_text: Vec<String> = zones
            .iter()
            .map(|(zone, (count, open))| {
                format!("{zone}: {}, {open} open", counted(*count, "backend"))
            })
            .collect();
        html! { @if zones.len() > 1 { p.hint { (zones_text.join("; ")) } } }
    }

    fn state(&self, backend: &Backend) -> Markup {
        let out = self
            .failing
            .iter()
            .find(|it| it.backend == backend.endpoint());
        match (backend.state, out) {
            (BackendState::Ready, None) if !backend.in_topology => {
                html! { "ready, for other nodes" }
            }
            (BackendState::Ready, None) => html! { "ready" },
            (BackendState::Terminating, None) => html! { "terminating" },
            (BackendState::Failing, None) => toned(Tone::Bad, "does not answer"),
            (_, Some(out)) => {
                let text = format!("{}, out for {}", out.cause, ago(out.since, self.now));
                toned(Tone::Bad, &text)
            }
        }
    }

    /// What is stored of it and cannot be used, or has no effect.
    fn notes(&self) -> Markup {
        let is_perhaps = |object: Option<&str>| {
            ServiceMention::of(object, &self.id) == Some(ServiceMention::PerhapsSlice)
        };
        let quarantined = |entry: &Quarantined| {
            vec![
                html! {
                    @if is_perhaps(entry.object.as_deref()) { "perhaps of it: " }
                    (entry.object.as_ref().unwrap_or(&entry.source))
                },
                toned(Tone::Warning, &reason(entry.field.as_ref(), &entry.reason)),
                html! { (entry.source) },
                time(entry.since),
            ]
        };
        let rows: Vec<Vec<Markup>> = self
            .quarantine
            .iter()
            .map(quarantined)
            .chain(self.warnings.iter().map(warning))
            .collect();
        html! {
            section #warnings data-live {
                h2 { "Quarantine and warnings" }
                @if rows.is_empty() { p { "None about it." } } @else { (table(&WARNING_TITLES, &rows)) }
                @if self.is_search_cut { p.warn { "There are too many of all objects: not all of them were searched." } }
            }
        }
    }
}

/// The form with its first frontend.
fn asked(service: &ContivService) -> FlowForm {
    let address = service.addresses().next();
    let port = service.ports.first();
    FlowForm {
        to: address
            .map(|address| address.to_string())
            .unwrap_or_default(),
        port: port.map(|port| port.port.to_string()).unwrap_or_default(),
        protocol: port
            .map(|port| port.protocol.to_string())
            .unwrap_or_default(),
        ..FlowForm::default()
    }
}

fn addresses(service: &ContivService) -> Markup {
    let policy = |policy: TrafficPolicy| match policy {
        TrafficPolicy::Cluster => "all backends",
        TrafficPolicy::Local => "backends of this node only",
    };
    let ports = service.ports.iter().map(|port| match port.node_port {
        Some(node_port) => format!("{}/{} (node port {node_port})", port.port, port.protocol),
        None => format!("{}/{}", port.port, port.protocol),
    });
    let carrier = service.assignment.addresses;
    let carriers = [
        (carrier.translates(), "nftables"),
        (carrier.routes(), "route"),
    ];
    let carriers = carriers.into_iter().filter(|(is_carrier, _)| *is_carrier);
    let carriers = joined(carriers.map(|(_, name)| name), MAX_ITEMS);
    let mut rows = vec![
        (
            "cluster IPs",
            html! { (joined(&*service.cluster_ips, MAX_ITEMS)) },
        ),
        ("ports", html! { (joined(ports, MAX_ITEMS)) }),
        ("from inside", html! { (policy(service.internal_policy)) }),
        ("from outside", html! { (policy(service.external_policy)) }),
        ("carried by", html! { (carriers) }),
    ];
    if !service.external_ips.is_empty() {
        rows.push((
            "external IPs",
            html! { (joined(&*service.external_ips, MAX_ITEMS)) },
        ));
    }
    if service.session_affinity_timeout > 0 {
        let seconds = service.session_affinity_timeout;
        rows.push(("a client keeps its backend for", html! { (seconds) " s" }));
    }
    if !service.source_ranges.is_empty() {
        rows.push((
            "only from",
            html! { (joined(&service.source_ranges, MAX_ITEMS)) },
        ));
    }
    let lost = service.lost.iter();
    let lost: Vec<String> = lost
        .map(|(frontend, holder)| format!("{frontend} ({holder})"))
        .collect();
    if !lost.is_empty() {
        rows.push((
            "held by others",
            toned(Tone::Warning, &joined(lost, MAX_ITEMS)),
        ));
    }
    let json = format!(
        "/services/{}/{}",
        in_url(&service.id.namespace),
        in_url(&service.id.name)
    );
    rows.push(("all of it", html! { a href=(json) { "JSON" } }));
    html! { section #addresses data-live { h2 { "Addresses and policies" } (facts(&rows)) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_with_generated_names_are_perhaps_of_the_service() {
        let web = ServiceId::new("shop", "web");
        for (object, relation) in [
            ("service shop/web", Some(ServiceMention::Named)),
            ("endpoints shop/web", Some(ServiceMention::Named)),
            (
                "EndpointSlice shop/web-x7k2p",
                Some(ServiceMention::PerhapsSlice),
            ),
            ("service shop/web-x7k2p", None),
            ("service bank/web", None),
            // Of the service `web-admin`, and of none that Kubernetes has named.
            ("EndpointSlice shop/web-admin-x7k2p", None),
            ("EndpointSlice shop/web-admin", None),
            ("EndpointSlice shop/website", None),
            ("EndpointSlice shop/we", None),
            ("web", None),
        ] {
            assert_eq!(ServiceMention::of(Some(object), &web), relation, "{object}");
        }
        assert_eq!(ServiceMention::of(None, &web), None);
    }
}
