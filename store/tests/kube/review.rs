//! Whether the owner of a token may read a path: token reviews and subject access reviews.

use contiv_store::kube::{KubeAddress, Review, TokenReviewer};
use contiv_store_testing::ApiServer;

fn reviewer(server: &ApiServer) -> TokenReviewer {
    TokenReviewer::new(KubeAddress {
        kubeconfig: Some(server.kubeconfig().unwrap()),
        ..KubeAddress::default()
    })
}

#[tokio::test]
async fn token_owner_may_read_paths_that_the_api_server_allows() {
    let server = ApiServer::start().unwrap();
    server.add_user_token("scraper", "prometheus", &["/metrics"]);
    server.add_user_token("stranger", "somebody", &["/version"]);
    let reviewer = reviewer(&server);
    for (token, expected) in [
        ("scraper", Review::Allowed),
        (
            "stranger",
            Review::Forbidden {
                user: "somebody".to_owned(),
            },
        ),
        ("other", Review::Unknown),
    ] {
        assert_eq!(
            reviewer.may_read(token, "/metrics").await.unwrap(),
            expected,
            "{token}"
        );
    }
}

#[tokio::test]
async fn reviewer_without_permission_names_the_needed_rule() {
    let server = ApiServer::start().unwrap();
    server.add_user_token("scraper", "prometheus", &["/metrics"]);
    let reviewer = reviewer(&server);
    server.deny("subjectaccessreviews", Some(403));
    let error = reviewer
        .may_read("scraper", "/metrics")
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("subjectaccessreviews: the role of this client needs the verb create"),
        "{error}"
    );
    server.deny("tokenreviews", Some(503));
    assert!(reviewer.may_read("scraper", "/metrics").await.is_err());
}
