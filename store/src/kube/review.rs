//! Asks the API server whether the sender of a token may read a path, as kube-rbac-proxy does.

use serde_json::{Value, json};

use super::{
    KubeAddress,
    client::Client,
    failure::{Failure, unavailable},
};
use crate::StoreError;

const TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// What the API server says of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Review {
    /// Its owner may.
    Allowed,
    /// Its owner may not.
    Forbidden {
        /// The name of the owner.
        user: String,
    },
    /// It does not know the token, or no longer.
    Unknown,
}

/// Reviews tokens with the identity of this process, whose role needs the verb `create` on `tokenreviews` and
/// `subjectaccessreviews`.
#[derive(Debug, Clone)]
pub struct TokenReviewer {
    address: KubeAddress,
}

impl TokenReviewer {
    /// A reviewer by the API server at `address`. Nothing is read or sent yet.
    pub const fn new(address: KubeAddress) -> Self {
        Self { address }
    }

    /// Whether the owner of this token may read `path`, which is of no resource, as in `/metrics`.
    ///
    /// # Errors
    /// When the API server does not answer, or does not let this process ask.
    pub async fn may_read(&self, token: &str, path: &str) -> Result<Review, StoreError> {
        // The files of the kubeconfig are read each time: a token of this process lasts an hour.
        let client = Client::open(&self.address).await?;
        let body = review(
            "authentication.k8s.io",
            "TokenReview",
            &json!({ "token": token }),
        );
        let known = create(&client, "tokenreviews", TOKENS, &body).await?;
        if known["authenticated"] != true {
            return Ok(Review::Unknown);
        }
        let user = &known["user"];
        let spec = json!({
            "user": user["username"],
            "uid": user["uid"],
            "groups": user["groups"],
            "extra": user["extra"],
            "nonResourceAttributes": { "path": path, "verb": "get" },
        });
        let body = review("authorization.k8s.io", "SubjectAccessReview", &spec);
        let access = create(&client, "subjectaccessreviews", ACCESS, &body).await?;
        Ok(if access["allowed"] == true {
            Review::Allowed
        } else {
            Review::Forbidden {
                user: user["username"].as_str().unwrap_or_default().to_owned(),
            }
        })
    }
}

fn review(group: &str, kind: &str, spec: &Value) -> Value {
    json!({ "apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec })
}

/// Creates a review, and returns its `status`.
async fn create(
    client: &Client,
    resource: &str,
    path: &str,
    body: &Value,
) -> Result<Value, StoreError> {
    let answer = client
        .post(resource, path, body.to_string())
        .await
        .map_err(|failure| match failure {
            Failure::Denied(_) => unavailable(
                &client.endpoint,
                format!("{resource}: the role of this client needs the verb create on it"),
            ),
            Failure::Store(error) => error,
            Failure::Gone | Failure::TooNew => {
                unavailable(&client.endpoint, format!("{resource}: {failure:?}"))
            }
        })?;
    let mut answer: Value = serde_json::from_slice(&answer)
        .map_err(|error| unavailable(&client.endpoint, format!("{resource}: {error}")))?;
    Ok(answer["status"].take())
}
