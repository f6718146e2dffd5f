//! What all pages share: the frame with its style and script, tables, and marks of states. The templates escape every text.

use axum::{
    http::{
        HeaderName, StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
            X_CONTENT_TYPE_OPTIONS,
        },
    },
    response::{IntoResponse, Response},
};
use contiv_model::ServiceId;
use jiff::{Timestamp, tz::TimeZone};
use maud::{DOCTYPE, Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::super::error::ApiError;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
/// They are in the addresses, so that browsers load what an update has changed.
const STYLE_FINGERPRINT: u64 = fingerprint(STYLE);
const SCRIPT_FINGERPRINT: u64 = fingerprint(SCRIPT);
/// Nothing but the agent's own style and script, and requests to the agent.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; \
                              form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// What remains as it is in a part of a path or query.
const IN_URL: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A complete page.
#[derive(Debug)]
pub(super) struct Page {
    status: StatusCode,
    content: Markup,
}

impl Page {
    /// A page with this title.
    pub(super) fn new(title: &str, main: &Markup) -> Self {
        let content = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (title) }
                    link rel="icon" href="data:,";
                    link rel="stylesheet" href={ "/page/style.css?v=" (STYLE_FINGERPRINT) };
                    script defer src={ "/page/script.js?v=" (SCRIPT_FINGERPRINT) } {}
                }
                body {
                    a.skip href="#main" { "Skip to the content" }
                    nav aria-label="Parts of the page" {
                        a.home href="/" { "contiv" }
                        a href="/#problems" { "Problems" }
                        a href="/#why" { "Why" }
                        a href="/#services" { "Services" }
                        a href="/page/flows" { "Connections" }
                        a href="/#timeline" { "Events" }
                        a href="/#renderers" { "Renderers" }
                        a href="/#paths" { "JSON" }
                        span #live role="status" {}
                    }
                    main #main tabindex="-1" { (main) }
                    footer { p.hint { "Times are of this node: UTC" (local(Timestamp::now(), "%:z")) } }
                }
            }
        };
        Self {
            status: StatusCode::OK,
            content,
        }
    }

    /// The same with another status.
    pub(super) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let headers = [
            (CONTENT_TYPE, "text/html; charset=utf-8"),
            (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (CACHE_CONTROL, "no-store"),
        ];
        (self.status, headers, self.content.into_string()).into_response()
    }
}

/// An error as a page.
#[derive(Debug)]
pub(super) struct PageError(ApiError);

impl From<ApiError> for PageError {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let text = self.0.to_string();
        let status = self.0.into_response().status();
        let main = html! {
            h1 { "This page cannot be shown" }
            p.bad { (text) }
            p { a href="/" { "To the first page" } }
        };
        Page::new("contiv", &main)
            .with_status(status)
            .into_response()
    }
}

/// The style of all pages.
pub(super) async fn style() -> Response {
    asset("text/css; charset=utf-8", STYLE)
}

/// Their script. Without it they are whole, but do not follow changes.
pub(super) async fn script() -> Response {
    asset("text/javascript; charset=utf-8", SCRIPT)
}

/// A number that differs for different texts (FNV-1a).
const fn fingerprint(text: &str) -> u64 {
    let (bytes, mut hash, mut index) = (text.as_bytes(), 0xcbf2_9ce4_8422_2325_u64, 0);
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(0x0100_0000_01b3);
        index += 1;
    }
    hash
}

fn asset(content_type: &'static str, content: &'static str) -> Response {
    let headers: [(HeaderName, &str); 3] = [
        (CONTENT_TYPE, content_type),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    (headers, content).into_response()
}

/// How something is, for its colour. A text or sign says it too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Warning,
    Bad,
}

impl Tone {
    pub(super) const fn class(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Good => "good",
            Self::Warning => "warn",
            Self::Bad => "bad",
        }
    }

    /// Plain for 0.
    pub(super) const fn warning_if(count: u64) -> Self {
        if count == 0 {
            Self::Plain
        } else {
            Self::Warning
        }
    }
}

/// A text in its colour.
pub(super) fn toned(tone: Tone, text: &str) -> Markup {
    html! { span class=(tone.class()) { (text) } }
}

/// A table with these titles of columns. On narrow screens each row is a block, in which cells have their title.
pub(super) fn table(titles: &[&str], rows: &[Vec<Markup>]) -> Markup {
    let heads: Vec<Markup> = titles
        .iter()
        .map(|title| html! { th scope="col" { (title) } })
        .collect();
    table_with_heads(titles, &heads, rows)
}

/// The same with heads that are more than titles.
pub(super) fn table_with_heads(titles: &[&str], heads: &[Markup], rows: &[Vec<Markup>]) -> Markup {
    html! {
        div.scroll { table {
            thead { tr { @for head in heads { (head) } } }
            tbody {
                @for row in rows {
                    tr { @for (title, cell) in titles.iter().zip(row) { td data-label=(title) { (cell) } } }
                }
            }
        } }
    }
}

/// A name and its value on each line.
pub(super) fn facts(facts: &[(&str, Markup)]) -> Markup {
    html! { dl.facts { @for (name, value) in facts { div { dt { (name) } dd { (value) } } } } }
}

/// A text as a part of an address.
pub(super) fn in_url(text: &str) -> String {
    utf8_percent_encode(text, IN_URL).to_string()
}

/// The address of a service's page.
pub(super) fn service_path(id: &ServiceId) -> String {
    let (namespace, name) = (in_url(&id.namespace), in_url(&id.name));
    format!("/page/services/{namespace}/{name}")
}

/// A link to a service's page.
pub(super) fn service_link(id: &ServiceId) -> Markup {
    html! { a href=(service_path(id)) { (id) } }
}

/// A time of this machine's zone, to the second.
pub(super) fn time(at: Timestamp) -> Markup {
    let text = local(at, "%F %T");
    html! { time datetime=(at) { (text) } }
}

/// A time of this machine's zone in this format.
pub(super) fn local(at: Timestamp, format: &str) -> String {
    at.to_zoned(TimeZone::system()).strftime(format).to_string()
}

/// The first items of a list, and how many there are.
pub(super) fn joined<T: ToString>(items: impl IntoIterator<Item = T>, most: usize) -> String {
    let mut items = items.into_iter();
    let shown: Vec<String> = items
        .by_ref()
        .take(most)
        .map(|item| item.to_string())
        .collect();
    let text = shown.join(", ");
    match items.count() {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}
