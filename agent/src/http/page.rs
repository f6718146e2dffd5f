//! The page for people: the main numbers and where to look further.

use std::fmt::Write;

use axum::{extract::State, response::Html};

use super::{Api, ENDPOINTS, error::ApiError};
use crate::event_loop::{Query, RendererView, Sizes, Status};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;\
    color-scheme:light dark}table{border-collapse:collapse;margin:0 0 1.5em}\
    td,th{text-align:left;padding:.15em 1.5em .15em 0;vertical-align:top}code{font-size:14px}";

pub(super) async fn page(State(api): State<Api>) -> Result<Html<String>, ApiError> {
    let status = api.ask(Query::Status).await?;
    let sizes = api.ask(Query::Sizes).await?;
    let renderers = api.ask(Query::Renderers).await?;
    Ok(Html(render(&status, sizes, &renderers)))
}

fn render(status: &Status, sizes: Sizes, renderers: &[RendererView]) -> String {
    let node = escape(&status.node);
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>contiv on {node}</title><style>{STYLE}</style>\
         <h1>contiv on {node}</h1><table>"
    );
    let store = match &status.store_down {
        Some(down) => format!("down since {}: {}", down.since, down.reason),
        None if status.synced => format!("followed, revision {}", status.revision),
        None => "not read yet".to_owned(),
    };
    for (name, value) in [
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("state", if status.ready { "ready" } else { "not ready" }.to_owned()),
        ("store", store),
        ("services", sizes.services.to_string()),
        ("service ports", sizes.service_ports.to_string()),
        ("backends", sizes.backends.to_string()),
        ("in quarantine", status.quarantined.to_string()),
        ("events", status.events.to_string()),
    ] {
        row(&mut page, "th", &[name, &value]);
    }
    page.push_str("</table><h2>Renderers</h2><table>");
    row(&mut page, "th", &["name", "state", "applied revision", "last call", "last error"]);
    for renderer in renderers {
        let call = renderer.last_report.as_ref();
        let call = call.map(|last| format!("{}, {:.1} ms", last.call, last.duration_ms)).unwrap_or_default();
        let error = renderer.last_error.as_ref().map(|last| format!("{}: {}", last.at, last.error));
        let revision = renderer.applied_revision.to_string();
        row(&mut page, "td", &[&renderer.name, renderer.state, &revision, &call, &error.unwrap_or_default()]);
    }
    page.push_str("</table><h2>Where to look</h2><table>");
    for (method, path, purpose) in ENDPOINTS {
        // A link only where nothing has to be filled in.
        let path = if method == "GET" && !path.contains('{') {
            format!("<a href=\"{path}\"><code>{path}</code></a>")
        } else {
            format!("<code>{method} {path}</code>")
        };
        // Writing to text does not fail.
        let _ = write!(page, "<tr><td>{path}<td>{}", escape(purpose));
    }
    page.push_str("</table></html>");
    page
}

/// One row; the first cell is of the given kind.
fn row(page: &mut String, first: &str, cells: &[&str]) {
    page.push_str("<tr>");
    for (position, cell) in cells.iter().enumerate() {
        let kind = if position == 0 { first } else { "td" };
        // Writing to text does not fail.
        let _ = write!(page, "<{kind}>{}", escape(cell));
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_markup() {
        let mut page = String::new();
        row(&mut page, "th", &["<script>alert(1)</script>", "\"onload=\"x", "&lt;"]);
        let cells = "<th>&lt;script&gt;alert(1)&lt;/script&gt;<td>&quot;onload=&quot;x<td>&amp;lt;";
        assert_eq!(page, format!("<tr>{cells}"));
    }
}
