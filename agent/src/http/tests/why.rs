//! `GET /why`.

use axum::{
    body::Body,
    extract::ConnectInfo,
    http::{Request, StatusCode},
};
use tower::ServiceExt;

use super::{LOOPBACK, error, ready, request, router};
use crate::connections::Peer;

const WHY: &str = "/why?from=127.0.0.1&to=127.0.0.1&port=9&protocol=tcp";

#[tokio::test]
async fn interface_that_is_not_there_is_refused() {
    let harness = ready(vec![]).await;
    let (status, reason) = error(&harness, &format!("{WHY}&interface=nowhere0")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(reason.contains("no interface nowhere0"), "{reason}");
}

#[tokio::test]
async fn backends_are_tried_only_for_callers_on_this_machine() {
    let harness = ready(vec![]).await;
    let probe = format!("{WHY}&probe=true");
    let (status, _) = request(&harness, "192.0.2.1:4000", "GET", &probe).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let (status, _) = request(&harness, "192.0.2.1:4000", "GET", WHY).await;
    assert_eq!(status, StatusCode::OK);
    // A page of another site cannot read the answer, but can have the browser ask.
    for (uri, header, value) in [
        (&*probe, "origin", "http://evil.example"),
        (&*probe, "sec-fetch-site", "cross-site"),
        // It could take the places of all that watch.
        ("/page/events", "sec-fetch-site", "cross-site"),
    ] {
        let request = Request::builder().uri(uri).header(header, value);
        let mut request = request.body(Body::empty()).unwrap();
        request
            .extensions_mut()
            .insert(ConnectInfo(Peer(LOOPBACK.parse().unwrap())));
        let response = router(harness.api()).oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{uri} {header}");
    }
}
