//! The answer of a health check, byte by byte equal to kube-proxy's.

use axum::{
    Json,
    http::{HeaderName, HeaderValue, StatusCode, header::X_CONTENT_TYPE_OPTIONS},
    response::{IntoResponse, Response},
};
use contiv_model::ServiceId;
use serde::Serialize;

/// The number of endpoints among which the load balancer's traffic is shared.
const WEIGHT: HeaderName = HeaderName::from_static("x-load-balancing-endpoint-weight");

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    service: Name<'a>,
    local_endpoints: usize,
    service_proxy_healthy: bool,
}

#[derive(Serialize)]
struct Name<'a> {
    namespace: &'a str,
    name: &'a str,
}

/// 200 if the load balancer can send traffic of the service to this node, else 503.
pub(super) fn answer(service: &ServiceId, local_endpoints: usize, is_healthy: bool) -> Response {
    let status = if local_endpoints > 0 && is_healthy {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let headers = [
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (WEIGHT, HeaderValue::from(local_endpoints)),
    ];
    let body = Body {
        service: Name {
            namespace: &service.namespace,
            name: &service.name,
        },
        local_endpoints,
        service_proxy_healthy: is_healthy,
    };
    (status, headers, Json(body)).into_response()
}
