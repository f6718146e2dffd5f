use std::time::Duration;

use axum::{
    body::{Body, to_bytes},
    extract::ConnectInfo,
    http::{Request, StatusCode},
};
use futures::StreamExt;
use tower::ServiceExt;

use crate::{
    connections::Peer,
    http::{
        router,
        tests::{LOOPBACK, ready, request},
    },
    test_support::{Harness, bad_service, batch, put, service},
};

async fn get(harness: &Harness, path: &str) -> String {
    let (status, page) = request(harness, LOOPBACK, "GET", path).await;
    assert_eq!(status, StatusCode::OK, "{path}: {page}");
    page
}

#[track_caller]
fn assert_has(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "{part} is not in:\n{page}");
    }
}

/// The values of an attribute.
fn values<'a>(page: &'a str, attribute: &str) -> Vec<&'a str> {
    let start = format!(" {attribute}=\"");
    let parts = page.split(&*start).skip(1);
    parts.filter_map(|part| part.split('"').next()).collect()
}

#[tokio::test]
async fn page_begins_with_the_problems_of_status() {
    let harness = ready(vec![]).await;
    harness
        .deliver(batch(
            8,
            vec![put(bad_service("db")), put(service("idle", 9))],
        ))
        .await;
    harness.history(|records| records.len() == 2).await;
    let page = get(&harness, "/").await;
    assert_has(
        &page,
        &[
            "<title>(1) contiv on n1</title>",
            "<h1>n1 <span class=\"state warn\">ready, with problems</span></h1>",
            "<section class=\"warn\" id=\"problems\" data-live><h2>1 problem</h2>",
            "quarantine: service default/db: ",
            "→ <a href=\"#quarantine\">quarantine</a>",
            "dir:/test: in sync at revision 8",
            "2 services, 2 ports, 1 backend",
            "<a class=\"warn\" href=\"/?show=problems#services\">1 service</a>",
            "<a href=\"/page/services/default/web\">default/web</a>",
            "<span class=\"bad\">none</span>",
            "<span class=\"warn\">no backend for 80/tcp</span>",
            "<form method=\"get\" action=\"/page/why\">",
        ],
    );
    let problems = page.find("id=\"problems\"");
    let parts = ["id=\"why\"", "id=\"services\"", "id=\"timeline\""];
    let places: Vec<_> = [problems]
        .into_iter()
        .chain(parts.map(|part| page.find(part)))
        .collect();
    assert!(
        places[0].is_some() && places.is_sorted(),
        "problems first: {places:?}"
    );
}

#[tokio::test]
async fn page_of_a_healthy_agent_is_green() {
    let harness = ready(vec![]).await;
    let page = get(&harness, "/").await;
    assert_has(
        &page,
        &[
            "<title>contiv on n1</title>",
            "<span class=\"state good\">ready</span>",
            "<section class=\"good\" id=\"problems\" data-live><h2>No problems</h2>",
            "1 service, 1 port, 1 backend",
            "<dt>without a backend</dt><dd>no service</dd>",
            "0 served, 0 refused in the last hour",
            "<td data-label=\"served\">0</td>",
        ],
    );
}

#[tokio::test]
async fn links_lead_to_parts_and_paths_that_exist() {
    let harness = ready(vec![]).await;
    harness
        .deliver(batch(8, vec![put(bad_service("db")), put(service("b", 9))]))
        .await;
    harness.history(|records| records.len() == 2).await;
    let pages = [
        "/",
        "/?q=web&sort=refused",
        "/page/services/default/web",
        "/page/why",
        "/page/flows?service=web",
    ];
    for from in pages {
        let page = get(&harness, from).await;
        let links = values(&page, "href").into_iter();
        for link in links.chain(values(&page, "src")) {
            if link == "data:," {
                continue;
            }
            let link = link.replace("&amp;", "&");
            let (path, id) = link.split_once('#').unwrap_or((&link, ""));
            let path = if path.is_empty() { from } else { path };
            let target = get(&harness, path).await;
            let id = format!("id=\"{id}\"");
            assert!(
                id == "id=\"\"" || target.contains(&id),
                "{from}: {link} leads nowhere"
            );
        }
        let ids = values(&page, "id");
        let mut once = ids.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(ids.len(), once.len(), "{from}: an id twice: {ids:?}");
    }
}

#[tokio::test]
async fn link_from_another_site_does_not_begin_to_watch_connections() {
    let harness = ready(vec![]).await;
    let api = harness.api();
    for (site, is_foreign) in [
        ("cross-site", true),
        ("same-site", true),
        ("same-origin", false),
    ] {
        let request = Request::get("/page/flows?client=10.1.1.1&verdict=refused");
        let mut request = request
            .header("sec-fetch-site", site)
            .body(Body::empty())
            .unwrap();
        let peer = ConnectInfo(Peer(LOOPBACK.parse().unwrap()));
        request.extensions_mut().insert(peer);
        let response = router(api.clone()).oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let page = String::from_utf8(body.to_vec()).unwrap();
        assert_has(
            &page,
            &[" value=\"10.1.1.1\"", "<option selected>refused</option>"],
        );
        let is_form_alone = page.contains("opened by a link from elsewhere");
        // The script would fetch it as its own.
        let is_live = page.contains("data-live");
        assert_eq!(
            (is_form_alone, is_live),
            (is_foreign, !is_foreign),
            "{page}"
        );
    }
}

#[tokio::test]
async fn browsers_may_load_nothing_but_own_files() {
    let harness = ready(vec![]).await;
    for path in ["/", "/page/services/default/web", "/page/why", "/?page=x"] {
        let mut request = Request::get(path).body(Body::empty()).unwrap();
        let peer = ConnectInfo(Peer(LOOPBACK.parse().unwrap()));
        request.extensions_mut().insert(peer);
        let response = router(harness.api()).oneshot(request).await.unwrap();
        let policy = &response.headers()["content-security-policy"];
        let policy = policy.to_str().unwrap();
        assert!(
            policy.contains("default-src 'none'") && !policy.contains("unsafe"),
            "{path}: {policy}"
        );
    }
    let page = get(&harness, "/").await;
    for inline in [
        " style=",
        "<style",
        " onclick=",
        "javascript:",
        "http://",
        "https://",
    ] {
        assert!(!page.contains(inline), "{inline} is in:\n{page}");
    }
}

#[tokio::test]
async fn service_page_shows_backends_attempts_and_events() {
    let harness = ready(vec![]).await;
    let page = get(&harness, "/page/services/default/web").await;
    assert_has(
        &page,
        &[
            "<h1>default/web <span class=\"state good\">served</span></h1>",
            "10.1.0.1:8080",
            "<td data-label=\"wanted\">",
            "100 %",
            "Since the kernel counts: 5 served, 0 refused. ",
            "the renderer nftables does not run",
            "name=\"to\" value=\"10.96.0.1\"",
            "<td data-label=\"kind\">snapshot</td>",
        ],
    );
    let (status, page) = request(&harness, LOOPBACK, "GET", "/page/services/default/none").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_has(&page, &["no such service is stored"]);
}

#[tokio::test]
async fn why_page_draws_the_steps_and_names_wrong_fields() {
    let harness = ready(vec![]).await;
    for to in ["10.96.0.1", "default%2Fweb"] {
        let path = format!("/page/why?from=10.1.0.9&to={to}&port=80&protocol=tcp&interface=");
        let page = get(&harness, &path).await;
        assert_has(
            &page,
            &[
                "<section id=\"steps\">",
                "<b>service</b>",
                "<section id=\"trace\">",
                "<b>verdict</b><div>SERVED by one backend</div>",
                "name=\"from\" value=\"10.1.0.9\"",
            ],
        );
    }
    for (arguments, problem) in [
        ("from=pod&to=10.96.0.1&port=80", "from: "),
        ("from=10.1.0.9&to=web&port=80", "as NAMESPACE/NAME"),
        ("from=10.1.0.9&to=a/b&port=80", "no service a/b"),
        ("from=10.1.0.9&to=10.96.0.1&port=", "port: "),
        (
            "from=10.1.0.9&to=10.96.0.1&port=80&protocol=icmp",
            "protocol: ",
        ),
        ("from=10.1.0.9&to=fd00::1&port=80", "famil"),
    ] {
        let path = format!("/page/why?{arguments}");
        let (status, page) = request(&harness, LOOPBACK, "GET", &path).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{arguments}");
        let text = page.split("role=\"alert\">").nth(1).unwrap_or_default();
        assert!(text.contains(problem), "{arguments}: {text}");
    }
}

#[tokio::test]
async fn link_that_asks_to_try_backends_gives_the_rest_of_the_answer() {
    let harness = ready(vec![]).await;
    let path = "/page/why?from=127.0.0.1&to=127.0.0.1&port=9&protocol=tcp&interface=lo&probe=true";
    let ask = async |peer: &str, site: &str| {
        let request = Request::get(path).header("sec-fetch-site", site);
        let mut request = request.body(Body::empty()).unwrap();
        let peer = ConnectInfo(Peer(peer.parse().unwrap()));
        request.extensions_mut().insert(peer);
        let response = router(harness.api()).oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    };
    let not_tried = "The backends were not tried.";
    let button = "<button>try the backends once</button>";
    let from_elsewhere = ask(LOOPBACK, "cross-site").await;
    assert_has(
        &from_elsewhere,
        &[not_tried, button, "<section id=\"steps\">"],
    );
    let interface = "<input type=\"hidden\" name=\"interface\" value=\"lo\">";
    assert_has(&from_elsewhere, &[interface, "<input name=\"interface\""]);
    let remote = ask("192.0.2.1:4000", "same-origin").await;
    assert_has(&remote, &[not_tried, "contiv why --probe"]);
    assert!(!remote.contains(button), "{remote}");
    let tried = ask(LOOPBACK, "same-origin").await;
    assert!(!tried.contains(not_tried), "{tried}");
}

#[tokio::test]
async fn timeline_accepts_any_hours_and_says_where_memory_begins() {
    let harness = ready(vec![]).await;
    for (path, words) in [
        ("/", "<b aria-current=\"true\">1 hour</b>"),
        ("/?hours=3", "<b aria-current=\"true\">3 hours</b>"),
        ("/?hours=0", "<b aria-current=\"true\">1 hour</b>"),
        ("/?hours=4294967295", "<b aria-current=\"true\">1 week</b>"),
    ] {
        let page = get(&harness, path).await;
        assert_has(&page, &[words, "class=\"unknown\"", "Remembered since "]);
    }
}

#[tokio::test]
async fn what_users_type_never_becomes_markup() {
    let harness = ready(vec![]).await;
    let hostile = "%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    for path in [
        format!("/?q={hostile}&namespace={hostile}"),
        format!("/page/why?from={hostile}&to={hostile}&port={hostile}&protocol={hostile}"),
        format!("/page/services/{hostile}/{hostile}"),
        format!("/?page={hostile}"),
    ] {
        let (_, page) = request(&harness, LOOPBACK, "GET", &path).await;
        assert!(page.contains("<h1>"), "{path}: {page}");
        assert!(!page.contains("<script>"), "{path}: {page}");
        assert!(!page.contains("\"&gt;"), "{path}: {page}");
    }
}

#[tokio::test]
async fn pages_are_told_when_something_changes() {
    let harness = ready(vec![]).await;
    let api = harness.api();
    let follow = async || {
        let mut request = Request::get("/page/events").body(Body::empty()).unwrap();
        let peer = ConnectInfo(Peer(LOOPBACK.parse().unwrap()));
        request.extensions_mut().insert(peer);
        router(api.clone()).oneshot(request).await.unwrap()
    };
    let response = follow().await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut messages = response.into_body().into_data_stream();
    harness
        .deliver(batch(8, vec![put(service("other", 2))]))
        .await;
    let message = tokio::time::timeout(Duration::from_secs(5), messages.next()).await;
    let message = message.expect("in time").unwrap().unwrap();
    assert_eq!(&*message, b"data: 2 8\n\n");

    // There is room for some pages, and it becomes free again.
    let mut others = Vec::new();
    loop {
        let response = follow().await;
        if response.status() != StatusCode::OK {
            assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
            break;
        }
        others.push(response);
    }
    assert_eq!(others.len(), 15, "and the first one");
    drop(messages);
    assert_eq!(follow().await.status(), StatusCode::OK);
}
