//! Lists one type, in pages.

use std::fmt::Write;

use contiv_proto::Key;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    client::Client,
    failure::{Failure, unavailable},
    object::receive,
    resource::Resource,
};
use crate::{Entry, Problem};

/// Objects per page, as in client-go.
const PAGE: u32 = 500;
/// How often a list is tried in pages. The first page's version may expire between two pages; after the last attempt everything
/// is requested at once.
const ATTEMPTS: usize = 3;

/// All objects of one type, at one version.
#[derive(Debug, Default)]
pub(super) struct ResourceList {
    pub(super) version: String,
    pub(super) entries: Vec<Entry>,
    pub(super) problems: Vec<Problem>,
}

#[derive(Debug, Deserialize)]
struct Page<'a> {
    metadata: PageMetadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PageMetadata {
    resource_version: String,
    #[serde(rename = "continue")]
    next: String,
}

/// All objects of a resource. Each page is reduced to what is kept before the next is requested.
pub(super) async fn list(client: &Client, resource: &Resource) -> Result<ResourceList, Failure> {
    for attempt in 0..=ATTEMPTS {
        let limit = if attempt < ATTEMPTS { PAGE } else { 0 };
        match pages(client, resource, limit).await {
            Ok(listed) => return Ok(listed),
            Err(Failure::Gone) => {}
            Err(failure) => return Err(failure),
        }
    }
    let reason =
        format!("the version of the {} was gone again and again before all were listed", resource.name());
    Err(unavailable(&client.endpoint, reason).into())
}

async fn pages(client: &Client, resource: &Resource, limit: u32) -> Result<ResourceList, Failure> {
    let mut listed = ResourceList::default();
    let mut next = String::new();
    loop {
        let page = client.get_whole(resource.name(), &query(resource, limit, &next)).await?;
        next = add_page(resource, &page, &mut listed).map_err(|reason| {
            unavailable(&client.endpoint, format!("a list of {}: {reason}", resource.name()))
        })?;
        if next.is_empty() {
            return Ok(listed);
        }
    }
}

/// The newest version of a type.
pub(super) async fn newest_version(client: &Client, resource: &Resource) -> Result<String, Failure> {
    let page = client.get_whole(resource.name(), &query(resource, 1, "")).await?;
    let Page { metadata, .. } = serde_json::from_slice(&page).map_err(|error| {
        let reason = format!("a list of {}: {error}", resource.name());
        unavailable(&client.endpoint, reason)
    })?;
    Ok(metadata.resource_version)
}

/// The version of an object now, or at a version of its type; none if it does not exist.
pub(super) async fn object_version(
    client: &Client,
    resource: &Resource,
    key: &Key,
    at: Option<&str>,
) -> Result<Option<i64>, Failure> {
    let mut query = format!(
        "{}?fieldSelector={}",
        resource.path_of(key.namespace()),
        escape(&format!("metadata.name={}", key.name()))
    );
    if let Some(version) = at {
        let _ = write!(query, "&resourceVersion={}&resourceVersionMatch=Exact", escape(version));
    }
    let page = client.get_whole(resource.name(), &query).await?;
    let mut listed = ResourceList::default();
    add_page(resource, &page, &mut listed).map_err(|reason| {
        unavailable(&client.endpoint, format!("a list of {}: {reason}", resource.name()))
    })?;
    Ok(listed.entries.first().map(|entry| entry.mod_revision))
}

/// Adds one page, and returns the token for the next one.
fn add_page(resource: &Resource, page: &[u8], listed: &mut ResourceList) -> Result<String, String> {
    let Page { metadata, items } = serde_json::from_slice(page).map_err(|error| error.to_string())?;
    for item in items.into_iter().flatten() {
        let (entry, problems) = receive(resource.kind, item.get())?.into_entry();
        listed.entries.extend(entry);
        listed.problems.extend(problems);
    }
    listed.version = metadata.resource_version;
    Ok(metadata.next)
}

fn query(resource: &Resource, limit: u32, next: &str) -> String {
    let mut query = format!("{}?", resource.path);
    if !resource.selector.is_empty() {
        let _ = write!(query, "fieldSelector={}&", escape(&resource.selector));
    }
    if limit > 0 {
        let _ = write!(query, "limit={limit}&");
    }
    if !next.is_empty() {
        let _ = write!(query, "continue={}&", escape(next));
    }
    query.pop();
    query
}

/// RFC 3986's unreserved characters are not escaped.
const RESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Escapes text for a query.
pub(super) fn escape(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, &RESERVED)
}

#[cfg(test)]
mod tests {
    use contiv_proto::Kind;

    use super::*;
    use crate::kube::{KubeAddress, Scope};

    fn node() -> Resource {
        Scope::node("n1", &KubeAddress::default()).resources().remove(0)
    }

    #[test]
    fn page_request_carries_the_continue_token() {
        assert_eq!(node().kind, Kind::Node);
        assert_eq!(query(&node(), 500, ""), "/api/v1/nodes?fieldSelector=metadata.name%3Dn1&limit=500");
        assert_eq!(
            query(&node(), 0, "a+b=="),
            "/api/v1/nodes?fieldSelector=metadata.name%3Dn1&continue=a%2Bb%3D%3D"
        );
    }

    #[test]
    fn half_page_is_no_page() {
        let mut listed = ResourceList::default();
        let page = br#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"n1"}},{"metadata"#;
        assert!(add_page(&node(), page, &mut listed).is_err());
    }

    #[test]
    fn page_without_items_is_end_of_empty_list() {
        let mut listed = ResourceList::default();
        let next = add_page(&node(), br#"{"metadata":{"resourceVersion":"7"},"items":null}"#, &mut listed);
        assert_eq!((next.unwrap().as_str(), listed.version.as_str(), listed.entries.len()), ("", "7", 0));
    }
}
