//! The debug HTTP: the whole state of the agent, as JSON. Handlers send messages to the node core and hold no state. The module
//! `controller` is the debug HTTP of the controllers.

mod actions;
mod api;
mod attempt_history;
mod balance;
mod bearer;
mod controller;
mod counters;
mod endpoints;
mod error;
mod flows;
mod forwarding_log;
mod health;
mod history_query;
mod load_balancer;
mod log_level;
mod loopback;
mod metrics_listener;
mod page;
mod pods;
mod protection;
mod recent_flows;
mod response_budget;
mod scrape;
mod serve_router;
mod trace;
mod views;
mod why;

#[cfg(test)]
mod tests;

use std::io;

use axum::{
    Router,
    routing::{delete, get, post},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use api::Api;
pub use bearer::ScrapeGuard;
pub use controller::CONTROLLER_ENDPOINTS;
pub(crate) use controller::{ControllerApi, serve_controllers};
pub use endpoints::ENDPOINTS;
pub(crate) use forwarding_log::log_forwarding;
pub use load_balancer::serve_load_balancers;
pub(crate) use metrics_listener::serve_metrics;
use protection::protect;
use serve_router::serve_router;

/// All endpoints.
pub fn router(api: Api) -> Router {
    protect(
        Router::new()
            .merge(page::routes())
            .route("/liveness", get(health::liveness))
            .route("/readiness", get(health::readiness))
            .route("/metrics", get(scrape::metrics))
            .route("/status", get(views::status))
            .route("/sizes", get(counters::sizes))
            .route("/counters", get(counters::counters))
            .route("/refused", get(counters::refused))
            .route("/flows", get(flows::flows))
            .route("/balance", get(balance::balance))
            .route("/services", get(views::services))
            .route("/services/{namespace}/{name}", get(views::service))
            .route("/snapshot", get(views::snapshot))
            .route("/config", get(views::configuration))
            .route("/objects", get(views::all_objects))
            .route("/objects/{kind}", get(views::objects))
            .route("/nodes", get(views::nodes))
            .route("/pods", get(pods::list).post(pods::add))
            .route("/pods/{namespace}/{name}", delete(pods::delete))
            .route("/renderers", get(views::renderers))
            .route("/renderers/{name}/dump", get(views::dump))
            .route("/health-checks", get(views::health_checks))
            .route("/quarantine", get(views::quarantine))
            .route("/warnings", get(views::warnings))
            .route("/trace", get(trace::trace))
            .route("/why", get(why::why))
            .route("/controller/event-history", get(views::history))
            .route("/log/level", get(log_level::get).put(log_level::put))
            .route("/controller/resync", post(actions::resync))
            .route(
                "/controller/confirm-deletions",
                post(actions::confirm_deletions),
            )
            .fallback(error::no_such_path)
            .method_not_allowed_fallback(error::no_such_method)
            .with_state(api),
    )
}

/// Serves until `stop` is cancelled; pending requests are completed.
///
/// # Errors
/// When the listener fails.
pub async fn serve(listener: TcpListener, api: Api, stop: CancellationToken) -> io::Result<()> {
    serve_router(listener, router(api), stop).await
}
