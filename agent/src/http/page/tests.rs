use crate::{
    http::tests::{LOOPBACK, ready, request},
    test_support::{bad_service, batch, put, service},
};

#[tokio::test]
async fn page_shows_the_state_without_script() {
    let harness = ready(vec![]).await;
    harness
        .deliver(batch(
            8,
            vec![put(bad_service("db")), put(service("idle", 9))],
        ))
        .await;
    harness.history(|records| records.len() == 2).await;
    let (status, page) = request(&harness, LOOPBACK, "GET", "/").await;
    assert_eq!(status, 200);
    for part in [
        "contiv on n1",
        "dir:/test",
        "<td>state</td><td><span class=\"warn\">ready, but see below</span>",
        "in sync at revision 8",
        "2 services, 2 ports, 1 backend<",
        "<td>refused</td><td><span class=\"warn\">3 attempts</span>",
        "<td>0</td><td><span class=\"warn\">3 no-endpoints</span></td>",
        "<span class=\"warn\">1 service</span>",
        "default/web",
        "10.1.0.1:8080",
        "<td>5</td>",
        "service default/db",
        "<span class=\"bad\">none</span>",
        "action=\"/why\"",
        "formaction=\"/trace\"",
        "aria-label=\"Changed services of each event\"",
        "<title>event 1: 1</title>",
        "<a href=\"#part-1\">Renderers</a>",
        "<h2 id=\"part-1\">Renderers</h2>",
    ] {
        assert!(page.contains(part), "{part} is not in:\n{page}");
    }
    for foreign in ["<script", "http://", "https://", "src="] {
        assert!(!page.contains(foreign), "{foreign} is in:\n{page}");
    }
}

#[tokio::test]
async fn page_of_a_healthy_agent_is_green() {
    let harness = ready(vec![]).await;
    let (_, page) = request(&harness, LOOPBACK, "GET", "/").await;
    for part in [
        "<td>state</td><td><span class=\"good\">ready</span>",
        "1 service, 1 port, 1 backend<",
        "<td>without a backend</td><td><span class=\"\">0 services</span>",
        "<th>served</th><th>refused</th>",
        "<td>refused</td><td><span class=\"\">0 attempts</span>",
    ] {
        assert!(page.contains(part), "{part} is not in:\n{page}");
    }
}

#[test]
fn stored_text_never_becomes_markup() {
    let hostile = "<script>alert('1')</script>\"&";
    assert_eq!(
        super::escape(hostile),
        "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot;&amp;"
    );
    assert_eq!(
        super::html::colored(hostile, "bad").0.matches('<').count(),
        2,
        "our own tag, and its end"
    );
}
