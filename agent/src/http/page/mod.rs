//! The page for people: state, services, history. Plain HTML without scripts and external resources.

mod content;
mod html;
mod plot;
mod sections;

#[cfg(test)]
mod tests;

use std::time::Instant;

use axum::{extract::State, response::Html};
use contiv_node::Core;
use contiv_node::metrics::ServiceSizes;

use self::{
    content::Content,
    html::{Page, escape},
};
use super::{Api, error::ApiError, history_query::HistoryQuery};

/// How many of the newest events are plotted.
const PLOTTED_EVENTS: usize = 200;

pub(super) async fn page(State(api): State<Api>) -> Result<Html<String>, ApiError> {
    let query = HistoryQuery {
        last: Some(PLOTTED_EVENTS),
        ..HistoryQuery::default()
    };
    let services = api.query(Core::services).await?;
    let content = Content {
        status: api.query(Core::status).await?,
        forwarding_off: api.forwarding_off().await?,
        table_problems: api.table_problems(),
        sizes: api.query(ServiceSizes::of).await?,
        renderers: api.query(|core| core.renderers(Instant::now())).await?,
        connections: api.counters.by_service(services.clone()).await.ok(),
        services,
        unserved: api.query(|core| core.unserved_services().collect()).await?,
        quarantine: api.query(|core| core.quarantine(0)).await?,
        warnings: api.query(|core| core.warnings(0)).await?,
        history: api
            .query(move |core| query.records(core, Instant::now()))
            .await?,
    };
    Ok(Html(render(&content)))
}

fn render(content: &Content) -> String {
    let mut page = Page::new(&format!("contiv on {}", content.status.node));
    sections::state(content, &mut page);
    sections::renderers(&content.renderers, &mut page);
    sections::quarantine(&content.quarantine, content.status.quarantined, &mut page);
    sections::warnings(&content.warnings, content.status.warnings, &mut page);
    plot::plots(&content.history, &mut page);
    sections::trace_form(&mut page);
    sections::events(&content.history, &mut page);
    sections::services(content, &mut page);
    sections::unserved(&content.unserved, &mut page);
    sections::endpoints(&mut page);
    page.finish()
}
