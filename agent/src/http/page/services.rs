//! The list of services: searched, filtered, sorted, and a page of it. All of that is in the address, so that it can be kept and sent.

use std::{
    cmp::Reverse,
    fmt::Write,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use contiv_model::{BackendState, ContivService, NotServed, ServiceId, UnservedService};
use contiv_node::plural::counted;
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    super::attempt_history::{AttemptHistory, Attempts, MAX_SERVICES, MINUTES},
    layout::{Tone, in_url, joined, service_link, table_with_heads, toned},
    plot::{HOURS, MAX_HOURS},
};

/// How many services a page shows.
const PAGE_SIZE: usize = 100;
/// How many addresses and ports of a service are shown.
const SHOWN_ITEMS: usize = 3;
/// How many namespaces are suggested.
const SUGGESTED_NAMESPACES: usize = 200;
const TITLES: [&str; 8] = [
    "service",
    "backends",
    "served",
    "silent",
    "refused",
    "addresses",
    "ports",
    "note",
];

/// Which services are shown, by the address of the page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct ListQuery {
    /// Words: addresses, parts of the name, or the beginning of an address.
    pub(super) q: String,
    /// The namespace; empty for all.
    pub(super) namespace: String,
    pub(super) show: Show,
    pub(super) sort: Sort,
    /// From 1.
    pub(super) page: usize,
    /// How many hours the timeline shows; it is kept by links of the list.
    pub(super) hours: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Show {
    #[default]
    All,
    /// Those with problems.
    Problems,
    /// Those that are not served.
    Unserved,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Sort {
    #[default]
    Name,
    /// The fewest first.
    Backends,
    /// The most in the last hour first.
    Served,
    Silent,
    Refused,
}

impl Show {
    const ALL: [(Self, &str, &str); 3] = [
        (Self::All, "all", "all services"),
        (Self::Problems, "problems", "with problems"),
        (Self::Unserved, "unserved", "not served"),
    ];
}

impl Sort {
    const fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Backends => "backends",
            Self::Served => "served",
            Self::Silent => "silent",
            Self::Refused => "refused",
        }
    }
}

impl ListQuery {
    /// How many hours the timeline shows.
    pub(super) fn hours(&self) -> u32 {
        self.hours.unwrap_or(HOURS[0]).clamp(1, MAX_HOURS)
    }

    /// The address of the list with this query.
    pub(super) fn path(&self) -> String {
        let show = Show::ALL.into_iter().find(|(show, ..)| *show == self.show);
        let hours = self.hours.map(|hours| hours.to_string());
        let page = self.page.to_string();
        let arguments = [
            ("q", &*self.q),
            ("namespace", &self.namespace),
            ("show", show.map_or("", |(_, name, _)| name)),
            ("sort", self.sort.name()),
            ("page", if self.page > 1 { &page } else { "" }),
            ("hours", hours.as_deref().unwrap_or_default()),
        ];
        let mut path = String::from("/?");
        for (name, value) in arguments {
            if !matches!((name, value), (_, "") | ("show", "all") | ("sort", "name")) {
                // Writing to a `String` cannot fail.
                let _ = write!(path, "{name}={}&", in_url(value));
            }
        }
        path.pop();
        path
    }
}

/// A service in the list.
#[derive(Debug, Clone, Copy)]
enum Listed<'a> {
    Served(&'a Arc<ContivService>),
    Unserved(&'a UnservedService),
}

impl<'a> Listed<'a> {
    fn id(self) -> &'a ServiceId {
        match self {
            Self::Served(service) => &service.id,
            Self::Unserved(service) => &service.id,
        }
    }

    fn backends(self) -> usize {
        match self {
            Self::Served(service) => service.ports.iter().map(|port| port.backends.len()).sum(),
            Self::Unserved(_) => 0,
        }
    }

    fn addresses(self) -> impl Iterator<Item = &'a IpAddr> {
        let (cluster_ips, external_ips) = match self {
            Self::Served(service) => (&service.cluster_ips, &service.external_ips),
            Self::Unserved(service) => (&service.cluster_ips, &service.external_ips),
        };
        cluster_ips.iter().chain(&**external_ips)
    }

    /// True if one of its addresses begins with this text. Each is written to the buffer, since there are many.
    fn has_address(self, text: &str, buffer: &mut String) -> bool {
        self.addresses().any(|address| {
            buffer.clear();
            // Writing to a `String` cannot fail.
            let _ = write!(buffer, "{address}");
            buffer.starts_with(text)
        })
    }

    fn has_problems(self, attempts: &AttemptHistory) -> bool {
        match self {
            Self::Served(service) => !problems(service, attempts).is_empty(),
            Self::Unserved(service) => service.not_served == NotServed::NoAddress,
        }
    }
}

/// What is wrong with a service, as far as it can be seen in its state on this node.
pub(super) fn problems(service: &ContivService, attempts: &AttemptHistory) -> Vec<String> {
    let mut problems = Vec::new();
    let mut unserved = service.ports_without_backends().peekable();
    if unserved.peek().is_some() {
        let ports = unserved.map(|port| format!("{}/{}", port.port, port.protocol));
        problems.push(format!("no backend for {}", joined(ports, SHOWN_ITEMS)));
    }
    if let Some((frontend, holder)) = service.lost.iter().next() {
        let more = match service.lost.len() {
            1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        problems.push(format!("{holder} holds {frontend}{more}"));
    }
    let backends = service.ports.iter().flat_map(|port| &port.backends);
    let failing = backends.filter(|backend| backend.state == BackendState::Failing);
    match failing.count() {
        0 => {}
        count => problems.push(format!("{} not answering", counted(count, "backend"))),
    }
    let hour = attempts.hour(&service.id).unwrap_or_default();
    for (count, outcome) in [(hour.silent, "left unanswered"), (hour.refused, "refused")] {
        if count > 0 {
            problems.push(format!("{count} {outcome} in the last hour"));
        }
    }
    problems
}

/// The services that a query selects.
#[derive(Debug)]
struct Selected<'a> {
    /// Those of its page.
    rows: Vec<Listed<'a>>,
    /// All that match.
    count: usize,
    /// The number of the page, from 1.
    page: usize,
    pages: usize,
}

fn select<'a>(
    services: &'a [Arc<ContivService>],
    unserved: &'a [UnservedService],
    attempts: &AttemptHistory,
    query: &ListQuery,
) -> Selected<'a> {
    let words = query.q.to_lowercase();
    // No name is an address of IPv4: those need not be compared with it. One of IPv6 may be the beginning of others.
    let words = words.split_whitespace();
    let (addresses, words): (Vec<_>, Vec<_>) = words
        .map(|word| word.parse::<Ipv4Addr>().map_err(|_| word))
        .partition(Result::is_ok);
    let addresses = addresses.into_iter().flatten();
    let addresses: Vec<IpAddr> = addresses.map(IpAddr::V4).collect();
    let words: Vec<&str> = words.into_iter().filter_map(Result::err).collect();
    let (mut name, mut address) = (String::new(), String::new());
    let mut matches = |listed: Listed<'_>| {
        let id = listed.id();
        if !query.namespace.is_empty() && *id.namespace != *query.namespace {
            return false;
        }
        let has = |wanted: &IpAddr| listed.addresses().any(|address| address == wanted);
        if !addresses.iter().all(has) {
            return false;
        }
        if words.is_empty() {
            return true;
        }
        name.clear();
        name.extend([&*id.namespace, "/", &*id.name]);
        name.make_ascii_lowercase();
        words.iter().all(|word| {
            let may_be_address = word.contains(['.', ':']);
            name.contains(word) || may_be_address && listed.has_address(word, &mut address)
        })
    };
    let served = services.iter().map(Listed::Served);
    let all = served.chain(unserved.iter().map(Listed::Unserved));
    let mut found: Vec<Listed<'a>> = all
        .filter(|listed| match query.show {
            Show::All => true,
            Show::Problems => listed.has_problems(attempts),
            Show::Unserved => matches!(listed, Listed::Unserved(_)),
        })
        .filter(|listed| matches(*listed))
        .collect();
    let hour = |listed: &Listed<'_>| attempts.hour(listed.id()).unwrap_or_default();
    // Services come in the order of names; sorts are stable, so it decides where nothing else does.
    found.sort_by(|one, other| one.id().cmp(other.id()));
    match query.sort {
        Sort::Name => {}
        Sort::Backends => found.sort_by_cached_key(|listed| listed.backends()),
        Sort::Served => found.sort_by_cached_key(|listed| Reverse(hour(listed).served)),
        Sort::Silent => found.sort_by_cached_key(|listed| Reverse(hour(listed).silent)),
        Sort::Refused => found.sort_by_cached_key(|listed| Reverse(hour(listed).refused)),
    }
    let count = found.len();
    let pages = count.div_ceil(PAGE_SIZE).max(1);
    let page = query.page.clamp(1, pages);
    let rows = found
        .into_iter()
        .skip((page - 1) * PAGE_SIZE)
        .take(PAGE_SIZE)
        .collect();
    Selected {
        rows,
        count,
        page,
        pages,
    }
}

/// The section with the list.
pub(super) fn section(
    services: &[Arc<ContivService>],
    unserved: &[UnservedService],
    attempts: &AttemptHistory,
    query: &ListQuery,
) -> Markup {
    let selected = select(services, unserved, attempts, query);
    let rows: Vec<Vec<Markup>> = selected.rows.iter().map(|it| row(*it, attempts)).collect();
    let heads: Vec<Markup> = TITLES.into_iter().map(|title| head(title, query)).collect();
    let all = services.len() + unserved.len();
    html! {
        section #services {
            h2 { "Services" }
            (form(services, query))
            p #counting.hint data-live { (counting(attempts)) }
            div #list data-live {
                @if all == 0 {
                    p { "There is none. Is there something in the store?" }
                } @else if selected.count == 0 {
                    p { "None of " (counted(all, "service")) " matches. " a href="/#services" { "Show all" } }
                } @else {
                    p.hint {
                        (counted(selected.count, "service"))
                        @if selected.count < all { " of " (all) }
                    }
                    (table_with_heads(&TITLES, &heads, &rows))
                    (pager(&selected, query))
                }
            }
        }
    }
}

/// What the numbers of attempts are.
pub(super) fn counting(attempts: &AttemptHistory) -> String {
    let at = match &attempts.read {
        Ok(at) => super::layout::local(*at, "%T"),
        Err(reason) => return format!("Attempts to connect are not known: {reason}."),
    };
    let minutes = attempts.minutes_known();
    let mut text = if minutes < MINUTES {
        format!(
            "Attempts to connect of the last {}",
            counted(minutes, "minute")
        )
    } else {
        "Attempts to connect of the last hour".to_owned()
    };
    // Writing to a `String` cannot fail.
    let _ = write!(text, ", as of {at}");
    if attempts.leaves_services_out {
        let _ = write!(
            text,
            "; of {MAX_SERVICES} services, those of others are not kept by minute"
        );
    }
    text.push('.');
    if let Err(reason) = &attempts.silence {
        let _ = write!(text, " Silent ones are not known: {reason}.");
    }
    text
}

fn form(services: &[Arc<ContivService>], query: &ListQuery) -> Markup {
    // They come in the order of namespaces.
    let mut namespaces: Vec<&str> = services.iter().map(|it| &*it.id.namespace).collect();
    namespaces.dedup();
    html! {
        form #filter method="get" action="/" role="search" {
            label { "search (/)" input type="search" name="q" value=(query.q) placeholder="name or address"; }
            label {
                "namespace"
                input name="namespace" value=(query.namespace) list="namespaces" placeholder="all";
            }
            datalist #namespaces { @for namespace in namespaces.iter().take(SUGGESTED_NAMESPACES) { option value=(namespace) {} } }
            label.short {
                "show"
                select name="show" {
                    @for (show, name, text) in Show::ALL {
                        option value=(name) selected[show == query.show] { (text) }
                    }
                }
            }
            @if let Some(hours) = query.hours { input type="hidden" name="hours" value=(hours); }
            @if query.sort != Sort::Name { input type="hidden" name="sort" value=(query.sort.name()); }
            button { "search" }
        }
    }
}

/// The head of a column, with a link if the list can be sorted by it.
fn head(title: &str, query: &ListQuery) -> Markup {
    let (sort, order) = match title {
        "service" => (Sort::Name, "ascending"),
        "backends" => (Sort::Backends, "ascending"),
        "served" => (Sort::Served, "descending"),
        "silent" => (Sort::Silent, "descending"),
        "refused" => (Sort::Refused, "descending"),
        _ => return html! { th scope="col" { (title) } },
    };
    let path = ListQuery {
        sort,
        page: 1,
        ..query.clone()
    };
    let is_current = sort == query.sort;
    html! {
        th scope="col" aria-sort=[is_current.then_some(order)] {
            a href={ (path.path()) "#services" } { (title) @if is_current { @if order == "ascending" { " ↑" } @else { " ↓" } } }
        }
    }
}

fn row(listed: Listed<'_>, attempts: &AttemptHistory) -> Vec<Markup> {
    let id = listed.id();
    let hour = attempts.hour(id);
    let count = |count: fn(Attempts) -> u64| {
        hour.map_or_else(|| "?".to_owned(), |it| count(it).to_string())
    };
    let of_hour = hour.unwrap_or_default();
    match listed {
        Listed::Served(service) => {
            let ports = service.ports.iter().map(|port| match port.node_port {
                Some(node_port) => format!("{}:{node_port}/{}", port.port, port.protocol),
                None => format!("{}/{}", port.port, port.protocol),
            });
            let backends = match listed.backends() {
                0 => toned(Tone::Bad, "none"),
                count => html! { (count) },
            };
            let problems = problems(service, attempts).join("; ");
            vec![
                service_link(id),
                backends,
                html! { (count(|it| it.served)) },
                toned(Tone::warning_if(of_hour.silent), &count(|it| it.silent)),
                toned(Tone::warning_if(of_hour.refused), &count(|it| it.refused)),
                html! { (joined(service.addresses(), SHOWN_ITEMS)) },
                html! { (joined(ports, SHOWN_ITEMS)) },
                html! { @if !problems.is_empty() { (toned(Tone::Warning, &problems)) } },
            ]
        }
        Listed::Unserved(service) => {
            let addresses = service.cluster_ips.iter().chain(&*service.external_ips);
            let tone = match service.not_served {
                NotServed::NoAddress => Tone::Warning,
                _ => Tone::Plain,
            };
            let note = format!("not served: {}", service.not_served.summary());
            vec![
                service_link(id),
                html! {},
                html! {},
                html! {},
                html! {},
                html! { (joined(addresses, SHOWN_ITEMS)) },
                html! {},
                toned(tone, &note),
            ]
        }
    }
}

/// Links to the other pages of the list.
fn pager(selected: &Selected<'_>, query: &ListQuery) -> Markup {
    let Selected { page, pages, .. } = *selected;
    let link = |page: usize, text: &str, rel: Option<&str>| {
        let path = ListQuery {
            page,
            ..query.clone()
        };
        html! { a href={ (path.path()) "#services" } rel=[rel] { (text) } }
    };
    html! {
        @if pages > 1 {
            div.pager role="navigation" aria-label="Pages of the list" {
                @if page > 1 { (link(1, "first", None)) (link(page - 1, "previous", Some("prev"))) }
                span { "page " (page) " of " (pages) }
                @if page < pages { (link(page + 1, "next", Some("next"))) (link(pages, "last", None)) }
            }
        }
    }
}

#[cfg(test)]
mod tests;
