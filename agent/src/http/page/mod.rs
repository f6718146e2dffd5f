//! The page for people: state, services, history. Plain HTML without scripts and external resources.

mod content;
mod html;
mod plot;
mod sections;

#[cfg(test)]
mod tests;

use axum::{extract::State, response::Html};

use self::{
    content::Content,
    html::{Page, escape},
};
use super::{Api, error::ApiError};
use crate::node::{HistoryQuery, Query};

/// How many of the newest events are plotted.
const PLOTTED: usize = 200;

pub(super) async fn page(State(api): State<Api>) -> Result<Html<String>, ApiError> {
    let query = HistoryQuery { last: Some(PLOTTED), ..HistoryQuery::default() };
    let services = api.ask(Query::Services).await?;
    let content = Content {
        status: api.ask(Query::Status).await?,
        sizes: api.ask(Query::Sizes).await?,
        renderers: api.ask(Query::Renderers).await?,
        connections: api.counters.by_service(services.clone()).await.ok(),
        services,
        quarantine: api.ask(|reply| Query::Quarantine(0, reply)).await?,
        history: api.ask(|reply| Query::History(query, reply)).await?,
    };
    Ok(Html(render(&content)))
}

fn render(content: &Content) -> String {
    let mut page = Page::new(&format!("contiv on {}", content.status.node));
    sections::state(content, &mut page);
    sections::renderers(&content.renderers, &mut page);
    sections::quarantine(&content.quarantine, content.status.quarantined, &mut page);
    plot::plots(&content.history, &mut page);
    sections::trace_form(&mut page);
    sections::events(&content.history, &mut page);
    sections::services(content, &mut page);
    sections::endpoints(&mut page);
    page.finish()
}
