use contiv_model::{Backend, Protocol, ServicePort};
use proptest::prelude::*;

use super::*;

fn service(namespace: &str, name: &str, last: u8, backends: u8) -> Arc<ContivService> {
    let backend = |number| Backend::new(([10, 1, last, number], 8080).into());
    let port = ServicePort {
        port: 80,
        protocol: Protocol::Tcp,
        name: "".into(),
        node_port: None,
        backends: (1..=backends).map(backend).collect(),
    };
    Arc::new(ContivService {
        cluster_ips: [[10, 96, 0, last].into()].into(),
        ports: vec![port],
        ..ContivService::new(ServiceId::new(namespace, name))
    })
}

fn services() -> Vec<Arc<ContivService>> {
    vec![
        service("data", "db", 1, 0),
        service("shop", "cart", 2, 3),
        service("shop", "web", 3, 1),
    ]
}

fn unserved() -> Vec<UnservedService> {
    let unserved = |name: &str, not_served| UnservedService {
        id: ServiceId::new("data", name),
        not_served,
        cluster_ips: contiv_model::Addresses::new(),
        external_ips: contiv_model::Addresses::new(),
        ports: Vec::new(),
    };
    vec![
        unserved("draft", NotServed::NoAddress),
        unserved("peers", NotServed::Headless),
    ]
}

fn query(text: &str) -> ListQuery {
    let uri = format!("/?{text}").parse().unwrap();
    axum::extract::Query::try_from_uri(&uri).unwrap().0
}

fn selected(text: &str) -> Vec<String> {
    let (services, unserved, attempts) = (services(), unserved(), AttemptHistory::example());
    let selected = select(&services, &unserved, &attempts, &query(text));
    selected.rows.iter().map(|it| it.id().to_string()).collect()
}

#[test]
fn query_selects_and_sorts_services() {
    let all = [
        "data/db",
        "data/draft",
        "data/peers",
        "shop/cart",
        "shop/web",
    ];
    assert_eq!(selected(""), all);
    assert_eq!(selected("q=SHOP/&unknown=1"), ["shop/cart", "shop/web"]);
    assert_eq!(selected("q=10.96.0.2"), ["shop/cart"]);
    assert_eq!(selected("q=10.96.0.2%20shop"), ["shop/cart"]);
    assert_eq!(selected("q=10.96.0.2%20data"), [""; 0]);
    assert_eq!(
        selected("q=10.96.0.&namespace=shop"),
        ["shop/cart", "shop/web"]
    );
    assert_eq!(selected("q=10.96.0.20"), [""; 0]);
    assert_eq!(selected("q=shop%20we"), ["shop/web"]);
    assert_eq!(selected("namespace=shop"), ["shop/cart", "shop/web"]);
    assert_eq!(selected("namespace=sho"), [""; 0]);
    assert_eq!(selected("show=unserved"), ["data/draft", "data/peers"]);
    let problems = ["data/db", "data/draft", "shop/web"];
    assert_eq!(selected("show=problems"), problems);
    assert_eq!(
        selected("sort=backends&namespace=shop"),
        ["shop/web", "shop/cart"]
    );
    assert_eq!(selected("sort=served&q=shop"), ["shop/cart", "shop/web"]);
    assert_eq!(selected("sort=refused")[0], "shop/web");
}

#[test]
fn problems_of_a_service_are_named() {
    let mut conflict = ContivService::clone(&service("shop", "web", 3, 1));
    let frontend = *conflict.frontends().first().unwrap();
    conflict.lost = [(frontend, ServiceId::new("shop", "old"))].into();
    conflict.ports[0].backends[0].state = BackendState::Failing;
    assert_eq!(
        problems(&conflict, &AttemptHistory::example()),
        [
            "shop/old holds 10.96.0.3:80/tcp",
            "1 backend not answering",
            "2 refused in the last hour",
        ]
    );
}

#[test]
fn markup_in_stored_names_is_escaped() {
    let hostile = [service("<b>\"'&", "<script>alert(1)</script>", 1, 1)];
    let html = section(&hostile, &[], &AttemptHistory::example(), &query("")).into_string();
    assert!(!html.contains("<script") && !html.contains("<b>"), "{html}");
    let path = "/page/services/%3Cb%3E%22%27%26/%3Cscript%3Ealert%281%29%3C%2Fscript%3E";
    assert!(html.contains(path), "{html}");
}

proptest! {
    /// The pages of a list have each service once, in the order of the list; and the address of a query selects the same.
    #[test]
    fn pages_divide_the_list(count in 0_usize..450, sort in 0..5_usize, words in "[ -~]{0,3}") {
        let services: Vec<_> = (0..count)
            .map(|number| service("shop", &format!("s{number:03}"), 1, u8::try_from(number % 3).unwrap()))
            .collect();
        let attempts = AttemptHistory::example();
        let sort = [Sort::Name, Sort::Backends, Sort::Served, Sort::Silent, Sort::Refused][sort];
        let mut query = ListQuery { sort, ..ListQuery::default() };
        let mut listed = Vec::new();
        let pages = select(&services, &[], &attempts, &query).pages;
        for page in 1..=pages {
            query.page = page;
            let selected = select(&services, &[], &attempts, &query);
            prop_assert!(selected.count == count && selected.page == page && selected.rows.len() <= PAGE_SIZE);
            listed.extend(selected.rows.iter().map(|it| it.id().clone()));
        }
        let mut expected: Vec<_> = services.iter().map(|service| service.id.clone()).collect();
        if sort == Sort::Backends {
            prop_assert!(listed.is_sorted_by_key(|id| id.name[1..].parse::<usize>().unwrap() % 3));
            listed.sort();
        }
        expected.sort();
        prop_assert_eq!(listed, expected);
        let query = ListQuery { q: words, namespace: "a&b".to_owned(), hours: Some(6), ..query };
        let read = axum::extract::Query::try_from_uri(&query.path().parse().unwrap()).unwrap().0;
        let page = if query.page == 1 { 0 } else { query.page };
        prop_assert_eq!(ListQuery { page, ..query }, read);
    }
}
