//! Reviews of tokens and of access.

use std::collections::BTreeMap;

use http::Response;
use serde_json::{Value, json};

use super::response::{Body, json_answer, status};

const TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// A user that the server knows.
#[derive(Debug, Clone)]
pub(super) struct User {
    pub(super) name: String,
    /// The paths that they may get.
    pub(super) paths: Vec<String>,
}

/// The plural of the reviews at this path.
pub(super) fn plural(path: &str) -> Option<&'static str> {
    match path {
        TOKENS => Some("tokenreviews"),
        ACCESS => Some("subjectaccessreviews"),
        _ => None,
    }
}

/// Answers a review with its status; `users` are those known, by their tokens.
pub(super) fn answer(path: &str, body: &[u8], users: &BTreeMap<String, User>) -> Response<Body> {
    let Ok(mut review) = serde_json::from_slice::<Value>(body) else {
        return status(400, "BadRequest", "the body is no JSON");
    };
    let spec = &review["spec"];
    let result = if path == TOKENS {
        match spec["token"].as_str().and_then(|token| users.get(token)) {
            Some(user) => json!({
                "authenticated": true,
                "user": { "username": user.name, "uid": "7", "groups": ["system:authenticated"] },
            }),
            None => json!({ "authenticated": false, "error": "invalid bearer token" }),
        }
    } else {
        let asked = &spec["nonResourceAttributes"];
        let is_right = |user: &&User| {
            spec["user"] == user.name
                && spec["groups"] == json!(["system:authenticated"])
                && asked["verb"] == "get"
                && user.paths.iter().any(|path| asked["path"] == path.as_str())
        };
        json!({ "allowed": users.values().any(|user| is_right(&user)) })
    };
    review["status"] = result;
    json_answer(review.to_string())
}
