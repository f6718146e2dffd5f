//! The first page: problems, the question why, the services, events, renderers, what cannot be used, and where there is more.

use std::sync::Arc;

use contiv_model::{ContivService, ServiceId, UnservedService};
use contiv_node::metrics::ServiceSizes;
use contiv_node::{
    FailoverStatus, Outcome, Quarantined, Record, RendererView, Status, VerificationView, Warning,
    plural::counted,
};
use contiv_renderer::{ForwardingOff, shared_tables::TableProblem};
use jiff::Timestamp;
use maud::{Markup, html};

use super::{
    super::attempt_history::{AttemptHistory, sum},
    super::endpoints::ENDPOINTS,
    diagnosis::{FlowForm, form},
    layout::{Page, Tone, facts, service_link, table, time, toned},
    plot::{HOURS, changed, latency, milliseconds, timeline},
    services::{self, ListQuery, Show},
};
use crate::health::{AgentHealth, HealthFacts, Problem, ProblemKind, RendererFacts, ago};

/// How many events, objects in quarantine and warnings are shown.
const MAX_ROWS: usize = 30;

/// What it shows.
pub(super) struct Overview {
    pub(super) status: Status,
    pub(super) forwarding_off: Vec<ForwardingOff>,
    pub(super) table_problems: Vec<TableProblem>,
    pub(super) sizes: ServiceSizes,
    pub(super) renderers: Vec<RendererView>,
    pub(super) services: Vec<Arc<ContivService>>,
    /// Stored services that are not served.
    pub(super) unserved: Vec<UnservedService>,
    pub(super) attempts: Arc<AttemptHistory>,
    pub(super) quarantine: Vec<Quarantined>,
    pub(super) warnings: Vec<Warning>,
    /// The events of the timeline, oldest first.
    pub(super) history: Vec<Record>,
    /// How many hours they are of.
    pub(super) hours: u32,
    /// Since when events are remembered.
    pub(super) remembered: Timestamp,
    pub(super) now: Timestamp,
}

impl Overview {
    /// As `contiv status` has them.
    pub(super) fn health_facts(&self) -> HealthFacts<'_> {
        let Self { status, sizes, .. } = self;
        let down = status.store_down.as_ref();
        let conflict = sizes.lost_frontends.first();
        HealthFacts {
            is_ready: status.ready,
            is_synced: status.synced,
            store_down: down.map(|down| (down.since, &*down.reason)),
            holds_deletions: status.held_deletions.is_some(),
            node_problem: status.node_problem.as_deref(),
            forwarding_off: &self.forwarding_off,
            table_problems: &self.table_problems,
            self_check: (status.self_check.as_ref()).map(|it| (it.since, &*it.reason)),
            failover: status.failover.as_ref(),
            renderers: self.renderers.iter().map(renderer_facts).collect(),
            quarantined: status.quarantined,
            first_quarantined: self.quarantine.first().map(|entry| {
                let object = entry.object.as_ref().unwrap_or(&entry.source);
                format!(
                    "quarantine: {object}: {}",
                    reason(entry.field.as_ref(), &entry.reason)
                )
            }),
            conflicts: sizes.services_with_lost_frontends,
            first_conflict: conflict.map(|it| (&it.service, it.frontend, &it.holder)),
        }
    }

    pub(super) fn render(&self, query: &ListQuery) -> Page {
        let main = html! {
            (self.head())
            (self.problems())
            section #why {
                h2 { "Why does a connection fail? Where does it go?" }
                (form(&FlowForm::default()))
            }
            (self.numbers())
            (services::section(&self.services, &self.unserved, &self.attempts, query))
            (self.timeline(query))
            (self.events())
            (self.renderers())
            (self.quarantine())
            (self.warnings())
            (paths())
        };
        let count = self.health_facts().problems(self.now).len();
        let title = match count {
            0 => format!("contiv on {}", self.status.node),
            count => format!("({count}) contiv on {}", self.status.node),
        };
        Page::new(&title, &main)
    }

    fn head(&self) -> Markup {
        let (health, tone) = match self.health_facts().health() {
            AgentHealth::Healthy => ("ready", Tone::Good),
            AgentHealth::NeedsAttention => ("ready, with problems", Tone::Warning),
            AgentHealth::NotReady => ("not ready", Tone::Bad),
        };
        html! {
            div #head data-live { h1 { (self.status.node) " " span.state.(tone.class()) { (health) } } }
        }
    }

    fn numbers(&self) -> Markup {
        let Self { status, sizes, .. } = self;
        let store = match &status.store_down {
            Some(_) => toned(Tone::Bad, "down"),
            None if status.from_mirror => {
                toned(Tone::Warning, "not read yet; the saved state is in use")
            }
            None if status.synced => html! { "in sync at revision " (status.revision) },
            None => toned(Tone::Warning, "not read yet"),
        };
        let to_problems = ListQuery {
            show: Show::Problems,
            ..ListQuery::default()
        };
        let without_backends = counted(sizes.services_without_backends, "service");
        let mut numbers = vec![
            ("store", html! { (status.store) ": " (store) }),
            (
                "serves",
                html! {
                    (counted(sizes.services, "service")) ", " (counted(sizes.service_ports, "port")) ", "
                    (counted(sizes.backends, "backend"))
                },
            ),
            (
                "without a backend",
                html! {
                    @if sizes.services_without_backends == 0 { "no service" } @else {
                        a.warn href={ (to_problems.path()) "#services" } { (without_backends) }
                    }
                },
            ),
            ("attempts to connect", self.attempts_of_hour()),
            ("change to kernel", self.latency()),
        ];
        if let Some(failing) = status.failover.as_ref().and_then(FailoverStatus::summary) {
            numbers.push(("failover", toned(Tone::Warning, &failing)));
        }
        if sizes.services_without_address > 0 {
            let text = counted(sizes.services_without_address, "service");
            let query = ListQuery {
                show: Show::Unserved,
                ..ListQuery::default()
            };
            let link = html! { a.warn href={ (query.path()) "#services" } { (text) } };
            numbers.push(("without an address", link));
        }
        if status.warnings > 0 {
            let link = html! { a.warn href="#warnings" { (counted(status.warnings, "warning")) } };
            numbers.push(("stored objects", link));
        }
        let version = html! { (status.version) ", up " (ago(status.started, self.now)) };
        numbers.push(("contiv", version));
        html! { section #numbers data-live { h2 { "Numbers" } (facts(&numbers)) } }
    }

    fn attempts_of_hour(&self) -> Markup {
        let hour = sum(&self.attempts.all);
        let by = |sort| {
            let query = ListQuery {
                sort,
                ..ListQuery::default()
            };
            query.path()
        };
        html! {
            @if self.attempts.read.is_err() { "not counted" } @else {
                (hour.served) " served"
                @if hour.silent > 0 { " (" a.warn href={ (by(services::Sort::Silent)) "#services" } { (hour.silent) " left unanswered" } ")" }
                ", "
                @if hour.refused == 0 { "0 refused" } @else { a.warn href={ (by(services::Sort::Refused)) "#services" } { (hour.refused) " refused" } }
                " in the last hour"
            }
        }
    }

    fn latency(&self) -> Markup {
        let mut latencies: Vec<f64> = self.history.iter().filter_map(latency).collect();
        latencies.sort_by(f64::total_cmp);
        html! {
            @match (latencies.get(latencies.len() / 2), latencies.last()) {
                (Some(median), Some(worst)) => { "median " (milliseconds(*median)) ", worst " (milliseconds(*worst)) " in " (period(self.hours)) }
                _ => { "no change in " (period(self.hours)) }
            }
        }
    }

    /// Exactly what makes `contiv status` say that someone should look.
    fn problems(&self) -> Markup {
        let problems = self.health_facts().problems(self.now);
        let tone = match self.health_facts().health() {
            AgentHealth::Healthy => Tone::Good,
            AgentHealth::NeedsAttention => Tone::Warning,
            AgentHealth::NotReady => Tone::Bad,
        };
        html! {
            section #problems.(tone.class()) data-live {
                @if problems.is_empty() {
                    h2 { "No problems" }
                    p { "There is nothing to look at." }
                } @else {
                    h2 { (counted(problems.len(), "problem")) }
                    ul { @for problem in &problems { li { (problem.text) " " "→ " (further(problem)) } } }
                }
            }
        }
    }

    fn timeline(&self, query: &ListQuery) -> Markup {
        let mut choices = HOURS.to_vec();
        if !choices.contains(&self.hours) {
            choices.push(self.hours);
            choices.sort_unstable();
        }
        html! {
            section #timeline data-live {
                h2 { "From a change to the kernel, and events" }
                (timeline(&self.history, self.hours, self.remembered, self.now))
                p.legend {
                    span { span.key {} "slowest change" }
                    span { span.key.trouble {} "trouble" }
                    span { span.key.other {} "other event" }
                }
                p.pager {
                    @for choice in choices {
                        @let path = ListQuery { hours: Some(choice), ..query.clone() };
                        @if choice == self.hours { b aria-current="true" { (period(choice)) } } @else { a href={ (path.path()) "#timeline" } { (period(choice)) } }
                    }
                }
            }
        }
    }

    fn events(&self) -> Markup {
        let rows: Vec<Vec<Markup>> = self
            .history
            .iter()
            .rev()
            .take(MAX_ROWS)
            .map(event)
            .collect();
        html! {
            section #events data-live {
                h2 { "The last events" }
                @if rows.is_empty() { p { "None in this time." } } @else { (table(&EVENT_TITLES, &rows)) }
                p.hint { "All: " a href="/controller/event-history" { "/controller/event-history" } ", or " code { "contiv events" } "." }
            }
        }
    }

    fn renderers(&self) -> Markup {
        let rows: Vec<Vec<Markup>> = self.renderers.iter().map(renderer).collect();
        let titles = [
            "name",
            "state",
            "revision",
            "waiting",
            "last call",
            "kernel",
            "last error",
        ];
        html! { section #renderers data-live { h2 { "Renderers" } (table(&titles, &rows)) } }
    }

    fn quarantine(&self) -> Markup {
        let row = |entry: &Quarantined| {
            vec![
                object_link(entry.object.as_deref(), &entry.source),
                toned(Tone::Warning, &reason(entry.field.as_ref(), &entry.reason)),
                html! { (entry.source) },
                html! { (entry.active_state.unwrap_or("not known")) },
                time(entry.since),
            ]
        };
        let rows: Vec<Vec<Markup>> = self.quarantine.iter().take(MAX_ROWS).map(row).collect();
        html! {
            section #quarantine data-live {
                h2 { "Quarantine" }
                @if rows.is_empty() { p { "Nothing: all that is stored can be used." } } @else {
                    (table(&["object", "reason", "where", "in use", "since"], &rows))
                    (more(rows.len(), self.status.quarantined, "/quarantine"))
                }
            }
        }
    }

    fn warnings(&self) -> Markup {
        let rows: Vec<Vec<Markup>> = self.warnings.iter().take(MAX_ROWS).map(warning).collect();
        html! {
            section #warnings data-live {
                h2 { "Warnings" }
                @if rows.is_empty() { p { "None: all fields of stored objects have their effect." } } @else {
                    (table(&WARNING_TITLES, &rows))
                    (more(rows.len(), self.status.warnings, "/warnings"))
                }
            }
        }
    }
}

/// A number of hours in words.
fn period(hours: u32) -> String {
    match hours {
        24 => "1 day".to_owned(),
        168 => "1 week".to_owned(),
        hours => counted(hours as usize, "hour"),
    }
}

fn renderer_facts(renderer: &RendererView) -> RendererFacts<'_> {
    let last = renderer.last_error.as_ref();
    let verification = renderer.verification.as_ref();
    RendererFacts {
        name: &renderer.name,
        state: renderer.state,
        failures: renderer.failures,
        last_error: last.map(|last| (last.at, &*last.error)),
        verified: verification.map(|it| (it.checked, it.drift)),
    }
}

/// A link to where one looks further.
fn further(problem: &Problem) -> Markup {
    if let Some(service) = &problem.service {
        return service_link(service);
    }
    let (target, text) = match problem.kind {
        ProblemKind::Store | ProblemKind::Deletions | ProblemKind::SelfCheck => {
            ("#timeline", "events")
        }
        ProblemKind::Renderer | ProblemKind::Drift => ("#renderers", "renderers"),
        ProblemKind::Quarantine => ("#quarantine", "quarantine"),
        ProblemKind::Node => ("/nodes", "nodes"),
        ProblemKind::Machine | ProblemKind::Failover | ProblemKind::Conflict => {
            ("/status", "status")
        }
    };
    html! { a href=(target) { (text) } }
}

pub(super) const EVENT_TITLES: [&str; 6] = [
    "time",
    "kind",
    "to the kernel",
    "services",
    "result",
    "what",
];

/// The row of an event.
pub(super) fn event(record: &Record) -> Vec<Markup> {
    let latency = latency(record);
    vec![
        html! { a href={ "/controller/event-history?seq-num=" (record.seq_num) } { (time(record.start)) } },
        html! { (record.kind) },
        html! { @if let Some(latency) = latency { (milliseconds(latency)) } },
        changed(record),
        html! { @for (name, outcome) in &record.renderers { div { (name) " " (result(outcome)) } } },
        html! { (record.description) },
    ]
}

fn result(outcome: &Outcome) -> Markup {
    match outcome {
        Outcome::Pending => toned(Tone::Warning, "pending"),
        Outcome::Applied { duration_ms, .. } => html! { "ok, " (milliseconds(*duration_ms)) },
        Outcome::Failed { error, .. } => toned(Tone::Bad, &format!("failed: {error}")),
    }
}

fn renderer(renderer: &RendererView) -> Vec<Markup> {
    let tone = match renderer.state {
        "idle" | "busy" => Tone::Good,
        "retrying" | "slow" => Tone::Bad,
        _ => Tone::Warning,
    };
    let waiting = match renderer.pending {
        "changes" => counted(renderer.pending_services, "service"),
        other => other.to_owned(),
    };
    let verification = renderer.verification.as_ref();
    vec![
        html! { a href={ "/renderers/" (renderer.name) "/dump" } { (renderer.name) } },
        toned(tone, renderer.state),
        html! { (renderer.applied_revision) },
        html! { (waiting) },
        html! {
            @if let Some(last) = &renderer.last_report { (last.call) ", " (milliseconds(last.duration_ms)) }
        },
        html! {
            @match verification {
                Some(VerificationView { error: Some(error), .. }) => (toned(Tone::Warning, &format!("not verified: {error}"))),
                Some(it) if it.drift > 0 => (toned(Tone::Warning, &format!("{} of {} differ", it.drift, it.checked))),
                Some(it) => { (counted(it.checked, "element")) " as they must be" },
                None => "not verified",
            }
        },
        html! { @if let Some(last) = &renderer.last_error { (time(last.at)) ": " (last.error) } },
    ]
}

pub(super) const WARNING_TITLES: [&str; 4] = ["object", "warning", "where", "since"];

/// The row of a warning.
pub(super) fn warning(warning: &Warning) -> Vec<Markup> {
    let Warning {
        source,
        object,
        field,
        reason: text,
        since,
    } = warning;
    vec![
        object_link(object.as_deref(), source),
        html! { (reason(field.as_ref(), text)) },
        html! { (source) },
        time(*since),
    ]
}

/// The service that is named as `service NAMESPACE/NAME`, or as manifests name it: `Service NAMESPACE/NAME`.
pub(super) fn named_service(object: &str) -> Option<ServiceId> {
    let (kind, id) = object.split_once(' ')?;
    let (namespace, name) = id
        .split_once('/')
        .filter(|_| kind.eq_ignore_ascii_case("service"))?;
    Some(ServiceId::new(namespace, name))
}

/// An object, with a link if it is a service; without a name, where it is.
fn object_link(object: Option<&str>, source: &str) -> Markup {
    html! {
        @match object {
            Some(object) => @match named_service(object) {
                Some(id) => { "service " (service_link(&id)) }
                None => (object)
            }
            None => (source)
        }
    }
}

/// The field and the reason.
pub(super) fn reason(field: Option<&String>, reason: &str) -> String {
    match field {
        Some(field) => format!("{field}: {reason}"),
        None => reason.to_owned(),
    }
}

/// How many entries are not shown, and where they are.
fn more(shown: usize, count: usize, path: &str) -> Markup {
    html! {
        @if count > shown {
            p { "And " (count - shown) " more: " a href={ (path) "?skip=" (shown) } { (path) } }
        }
    }
}

/// The endpoints.
fn paths() -> Markup {
    let row = |(method, path, purpose): &(&str, &str, &str)| {
        // A link only if no parameter has to be filled in.
        let is_link = *method == "GET" && !path.contains('{') && !["/trace", "/why"].contains(path);
        let path = html! {
            @if is_link { a href=(path) { code { (path) } } } @else { code { (method) " " (path) } }
        };
        vec![path, html! { (purpose) }]
    };
    let rows: Vec<Vec<Markup>> = ENDPOINTS.iter().map(row).collect();
    html! {
        section #paths {
            h2 { "Where there is more" }
            details { summary { "All paths of this server" } (table(&["path", "what it answers"], &rows)) }
        }
    }
}
