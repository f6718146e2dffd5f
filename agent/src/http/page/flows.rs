//! The page of the newest connections through services.

use axum::{
    extract::{Query as Arguments, State, rejection::QueryRejection},
    http::{HeaderMap, StatusCode},
};
use contiv_model::ServiceId;
use contiv_node::{
    flows::{FlowNews, FlowVerdict, ServiceFlow},
    plural::counted,
};
use maud::{Markup, html};

use super::{
    super::{
        Api,
        flows::FlowsArguments,
        protection::refuse_foreign_site,
        recent_flows::{LEASE, MAX_CONNECTIONS, RecentView, known_verdict},
        views::bad_request,
    },
    layout::{Page, PageError, Tone, in_url, local, service_link, table, toned},
};

/// How many connections are shown, the newest ones: pages are fetched each second.
const MAX_ROWS: usize = 200;
const TITLES: [&str; 7] = [
    "service", "client", "backend", "state", "verdict", "at", "why",
];
const VERDICTS: [FlowVerdict; 3] = [
    FlowVerdict::Served,
    FlowVerdict::Unanswered,
    FlowVerdict::Refused,
];

/// `GET /page/flows`: the first view begins to watch connections, and others go on with that. That costs time of the kernel, which pages
/// of other sites may not cause: by a link from there the page has only its form.
pub(super) async fn flows_page(
    State(api): State<Api>,
    headers: HeaderMap,
    arguments: Result<Arguments<FlowsArguments>, QueryRejection>,
) -> Result<Page, PageError> {
    let Arguments(asked) = arguments.map_err(bad_request)?;
    let filter = match asked.filter() {
        Ok(filter) => filter,
        Err(problem) => {
            let problem = html! { p.bad role="alert" { (problem) } };
            return Ok(page(&asked, &problem, false).with_status(StatusCode::BAD_REQUEST));
        }
    };
    if refuse_foreign_site(&headers).is_err() {
        let how = html! {
            p.warn { "This page was opened by a link from elsewhere: “show” begins to watch connections." }
        };
        return Ok(page(&asked, &how, false));
    }
    let recent = match api.recent_flows.view(filter).await {
        Ok(view) => connections(&asked, &view),
        Err(reason) => html! { p.bad { "Connections cannot be watched: " (reason) } },
    };
    Ok(page(&asked, &recent, true))
}

/// The address of the page with the connections of a service.
pub(super) fn flows_path(id: &ServiceId) -> String {
    path(&FlowsArguments {
        namespace: id.namespace.to_string(),
        service: id.name.to_string(),
        ..FlowsArguments::default()
    })
}

fn path(asked: &FlowsArguments) -> String {
    let arguments = [
        ("namespace", &asked.namespace),
        ("service", &asked.service),
        ("client", &asked.client),
        ("verdict", &asked.verdict),
    ];
    let given = arguments.iter().filter(|(_, value)| !value.is_empty());
    let given: Vec<String> = given
        .map(|(name, value)| format!("{name}={}", in_url(value)))
        .collect();
    if given.is_empty() {
        "/page/flows".to_owned()
    } else {
        format!("/page/flows?{}", given.join("&"))
    }
}

/// The page with its form. If it is live the script fetches it again when there is something new.
fn page(asked: &FlowsArguments, recent: &Markup, is_live: bool) -> Page {
    let main = html! {
        h1 { "Connections through services" }
        section #which { (form(asked)) }
        section #recent data-live[is_live] data-events=[is_live.then_some("/page/events?flows=true")] { (recent) }
    };
    Page::new("Connections – contiv", &main)
}

fn form(asked: &FlowsArguments) -> Markup {
    html! {
        form method="get" action="/page/flows" {
            label.short { "namespace" input name="namespace" value=(asked.namespace) placeholder="all"; }
            label.short { "service" input name="service" value=(asked.service) placeholder="all"; }
            label { "client" input name="client" value=(asked.client) placeholder="10.244.1.5 or 10.244.1.0/24"; }
            label.short {
                "verdict"
                select name="verdict" {
                    option value="" { "all" }
                    @for verdict in VERDICTS { option selected[verdict.to_string() == asked.verdict] { (verdict) } }
                }
            }
            button { "show" }
        }
    }
}

fn connections(asked: &FlowsArguments, view: &RecentView) -> Markup {
    let minutes = LEASE.as_secs() / 60;
    let rows: Vec<Vec<Markup>> = view
        .flows
        .iter()
        .take(MAX_ROWS)
        .map(|flow| row(asked, flow))
        .collect();
    html! {
        p.hint {
            @if view.is_first {
                "The watch begins now: these are the connections that the kernel knows already, and those refused in the last two minutes. "
            } @else {
                "Watched since " (local(view.since, "%T")) "; of those before, what the kernel knew then. "
            }
            "The newest first. The watch ends " (minutes) " minute after the last look."
        }
        @for (at, notice) in &view.notices { p.warn { (local(*at, "%T")) ": " (notice) } }
        @if view.verdicts.is_empty() && view.begun == 0 {
            p { "None so far." }
        } @else {
            p {
                (summary(asked, view))
                @if view.flows.len() > MAX_ROWS { "; the newest " (MAX_ROWS) " are shown" }
                "."
            }
            @if rows.is_empty() { p { "None of them is " (asked.verdict) "." } } @else { (table(&TITLES, &rows)) }
        }
    }
}

/// How many there are, and with links how many of them have which verdict.
fn summary(asked: &FlowsArguments, view: &RecentView) -> Markup {
    let link = |verdict: FlowVerdict| {
        path(&FlowsArguments {
            verdict: verdict.to_string(),
            ..asked.clone()
        })
    };
    let count = view.verdicts.values().sum::<usize>() + view.begun;
    html! {
        @if count == MAX_CONNECTIONS { "The newest " }
        (counted(count, "connection")) ":"
        @for (at, (verdict, count)) in view.verdicts.iter().enumerate() {
            @if at > 0 { "," }
            " " a href=(link(*verdict)) { (count) " " (verdict) }
        }
        @if view.begun > 0 {
            @if !view.verdicts.is_empty() { "," }
            " " (view.begun) " just begun"
        }
    }
}

fn row(asked: &FlowsArguments, flow: &ServiceFlow) -> Vec<Markup> {
    let client = flow.client.ip().to_string();
    let of_client = path(&FlowsArguments {
        client: client.clone(),
        ..asked.clone()
    });
    let why = format!(
        "/page/why?from={}&to={}&port={}&protocol={}",
        in_url(&client),
        in_url(&flow.destination.ip().to_string()),
        flow.destination.port(),
        flow.protocol(),
    );
    let verdict = known_verdict(flow);
    let state = match flow.tcp_state {
        // It is another one since: the kernel does not tell of each change.
        _ if verdict.is_none() => String::new(),
        Some(state) => state.to_string(),
        None if flow.is_answered => "answered".to_owned(),
        None => String::new(),
    };
    let tone = match verdict {
        None | Some(FlowVerdict::Served) => Tone::Plain,
        Some(FlowVerdict::Unanswered) => Tone::Warning,
        Some(FlowVerdict::Refused) => Tone::Bad,
    };
    let verdict = match (verdict, flow.reason) {
        (None, _) => String::new(),
        (Some(verdict), Some(reason)) => format!("{verdict}: {reason}"),
        (Some(verdict), None) => verdict.to_string(),
    };
    let at = match (flow.event, flow.started) {
        (FlowNews::Live, Some(started)) => started,
        _ => flow.at,
    };
    vec![
        service_link(&flow.service),
        html! { a href=(of_client) { (flow.client) } },
        html! { @if let Some(backend) = flow.backend { (backend) } },
        html! { (state) },
        toned(tone, &verdict),
        html! { (local(at, "%T")) " " (flow.event) },
        html! { a href=(why) { "why" } },
    ]
}

#[cfg(test)]
mod tests {
    use contiv_model::{Frontend, Protocol};
    use contiv_node::flows::FlowReason;
    use contiv_renderer::packet_path::TcpState;
    use jiff::Timestamp;

    use super::*;

    fn refused() -> ServiceFlow {
        ServiceFlow {
            event: FlowNews::Refused,
            at: Timestamp::UNIX_EPOCH,
            id: None,
            service: ServiceId::new("shop", "web"),
            frontend: Frontend::NodePort {
                protocol: Protocol::Tcp,
                port: 30080,
            },
            client: "[fd00::9]:4000".parse().unwrap(),
            destination: "[fd00::1]:30080".parse().unwrap(),
            backend: None,
            source: None,
            verdict: FlowVerdict::Refused,
            reason: Some(FlowReason::NoEndpoints),
            tcp_state: None,
            is_answered: false,
            started: None,
            traffic: None,
        }
    }

    fn view(flows: Vec<ServiceFlow>) -> RecentView {
        RecentView {
            verdicts: [(FlowVerdict::Refused, flows.len())].into(),
            begun: 0,
            flows,
            notices: vec![(Timestamp::UNIX_EPOCH, "one in <4> is shown".to_owned())],
            since: Timestamp::UNIX_EPOCH,
            is_first: true,
        }
    }

    #[test]
    fn refused_connection_has_its_reason_and_links() {
        let asked = FlowsArguments {
            namespace: "a&b".to_owned(),
            ..FlowsArguments::default()
        };
        let shown = connections(&asked, &view(vec![refused()])).into_string();
        for part in [
            "The watch begins now",
            "one in &lt;4&gt; is shown",
            "1 connection: <a href=\"/page/flows?namespace=a%26b&amp;verdict=refused\">1 refused</a>.",
            "<a href=\"/page/services/shop/web\">shop/web</a>",
            "<a href=\"/page/flows?namespace=a%26b&amp;client=fd00%3A%3A9\">[fd00::9]:4000</a>",
            "<span class=\"bad\">refused: no-endpoints</span>",
            "/page/why?from=fd00%3A%3A9&amp;to=fd00%3A%3A1&amp;port=30080&amp;protocol=tcp\">why</a>",
        ] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
    }

    #[test]
    fn connection_that_has_begun_is_not_served_yet() {
        let new = ServiceFlow {
            event: FlowNews::New,
            verdict: FlowVerdict::Served,
            reason: None,
            tcp_state: Some(TcpState::SynSent),
            ..refused()
        };
        let view = RecentView {
            verdicts: [(FlowVerdict::Unanswered, 2)].into(),
            begun: 1,
            ..view(vec![new])
        };
        let shown = connections(&FlowsArguments::default(), &view).into_string();
        for part in [">2 unanswered</a>, 1 just begun.", " new</td>"] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
        for part in ["served", "syn-sent"] {
            assert!(!shown.contains(part), "{part} is in {shown}");
        }
        let asked = FlowsArguments {
            verdict: "refused".to_owned(),
            ..FlowsArguments::default()
        };
        let flows = Vec::new();
        let shown = connections(&asked, &RecentView { flows, ..view }).into_string();
        assert!(shown.contains("None of them is refused."), "{shown}");
    }

    #[test]
    fn page_shows_the_newest_and_counts_all() {
        let many = vec![refused(); MAX_CONNECTIONS];
        let shown = connections(&FlowsArguments::default(), &view(many)).into_string();
        assert_eq!(shown.matches("<tr>").count(), MAX_ROWS + 1);
        assert!(shown.contains("The newest 1000 connections: "), "{shown}");
        assert!(shown.contains("; the newest 200 are shown."), "{shown}");
    }

    #[test]
    fn empty_fields_of_the_form_are_no_filter_and_wrong_ones_are_named() {
        let asked = |client: &str, verdict: &str| {
            let (client, verdict) = (client.to_owned(), verdict.to_owned());
            let arguments = FlowsArguments {
                client,
                verdict,
                ..FlowsArguments::default()
            };
            arguments.filter()
        };
        assert_eq!(asked("", ""), Ok(contiv_node::flows::FlowFilter::default()));
        let filter = asked("10.0.0.9, 10.1.0.0/16", "refused").unwrap();
        assert_eq!(filter.clients.len(), 2);
        assert_eq!(filter.verdict, Some(FlowVerdict::Refused));
        assert!(asked("web", "").unwrap_err().starts_with("client: "));
        let error = asked("", "bad").unwrap_err();
        assert!(
            error.starts_with("verdict: ") && error.contains("unanswered"),
            "{error}"
        );
    }
}
