//! Lists one type.

use std::fmt::Write;

use contiv_proto::Key;

use super::{
    client::Client,
    entries::Entries,
    failure::{Failure, unavailable},
    object::receive,
    protobuf::ListMetadata,
    query::escape,
    resource::Resource,
};

/// Objects per page, as in client-go.
const PAGE_SIZE: u32 = 500;
/// The limit of pages: ten million objects.
const MAX_PAGES: usize = 20_000;

/// The state of a type to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin<'a> {
    /// What the API server has in its cache: any version, or not before this one. Costs its etcd nothing. It comes as a whole,
    /// unless the server has no cache.
    Cache { oldest: Option<&'a str> },
    /// What was written last, in pages.
    Newest,
    /// What was written last, as a whole: no version can expire between two pages.
    NewestWhole,
}

/// Lists all objects of a resource, each of which is reduced to what is kept as it arrives. Returns their version.
pub(super) async fn list(
    client: &Client,
    resource: &Resource,
    origin: Origin<'_>,
    entries: &mut Entries<'_>,
) -> Result<String, Failure> {
    let mut next = String::new();
    for _ in 0..MAX_PAGES {
        let page = add_page(client, resource, &query(resource, origin, &next), entries).await?;
        if page.next.is_empty() {
            return Ok(page.resource_version);
        }
        if page.next == next {
            break;
        }
        next = page.next;
    }
    Err(unavailable(
        &client.endpoint,
        format!("a list of {} has no last page", resource.name()),
    )
    .into())
}

/// The newest version of a type.
pub(super) async fn newest_version(
    client: &Client,
    resource: &Resource,
) -> Result<String, Failure> {
    let mut query = format!("{}?", resource.path);
    resource.add_selectors(&mut query);
    query.push_str("limit=1");
    let page = add_page(client, resource, &query, &mut Entries::new("", None)).await?;
    Ok(page.resource_version)
}

/// The version of an object now, or at a version of its type; none if it does not exist, or is not among those that are read.
pub(super) async fn object_version(
    client: &Client,
    resource: &Resource,
    key: &Key,
    at: Option<&str>,
) -> Result<Option<i64>, Failure> {
    let fields = format!("metadata.name={}", key.name());
    let resource = Resource {
        fields,
        ..resource.clone()
    };
    let mut query = format!("{}?", resource.path_of(key.namespace()));
    resource.add_selectors(&mut query);
    match at {
        Some(version) => {
            let _ = write!(
                query,
                "resourceVersion={}&resourceVersionMatch=Exact",
                escape(version)
            );
        }
        None => _ = query.pop(),
    }
    let mut entries = Entries::new("", None);
    add_page(client, &resource, &query, &mut entries).await?;
    Ok(entries.rest.first().map(|entry| entry.mod_revision))
}

/// Adds one page.
async fn add_page(
    client: &Client,
    resource: &Resource,
    query: &str,
    entries: &mut Entries<'_>,
) -> Result<ListMetadata, Failure> {
    let mut body = client.list(resource, query).await?;
    loop {
        let add = |item: &str| -> Result<(), String> {
            entries.add(receive(resource.kind, item)?);
            Ok(())
        };
        if !body.next(add).await? {
            break;
        }
        entries.send_full_page().await;
    }
    body.finish()
}

fn query(resource: &Resource, origin: Origin<'_>, next: &str) -> String {
    let mut query = format!("{}?", resource.path);
    resource.add_selectors(&mut query);
    let is_whole = match origin {
        Origin::Cache { oldest } => oldest.is_some(),
        Origin::Newest => false,
        Origin::NewestWhole => true,
    };
    // Without a version to begin at the limit counts only for a server without a cache; client-go sends it too.
    if !is_whole || !next.is_empty() {
        let _ = write!(query, "limit={PAGE_SIZE}&");
    }
    if !next.is_empty() {
        let _ = write!(query, "continue={}&", escape(next));
    } else if let Origin::Cache { oldest } = origin {
        let _ = match oldest {
            None => write!(query, "resourceVersion=0&"),
            Some(version) => {
                write!(
                    query,
                    "resourceVersion={}&resourceVersionMatch=NotOlderThan&",
                    escape(version)
                )
            }
        };
    }
    query.pop();
    query
}

#[cfg(test)]
mod tests {
    use contiv_proto::Kind;

    use super::*;
    use crate::kube::{KubeAddress, Scope};

    fn node() -> Resource {
        Scope::node("n1", "", &KubeAddress::default())
            .resources()
            .remove(0)
    }

    #[test]
    fn list_request_names_the_origin_and_the_page() {
        assert_eq!(node().kind, Kind::Node);
        let path = "/api/v1/nodes?fieldSelector=metadata.name%3Dn1";
        for (origin, next, expected) in [
            (Origin::Newest, "", "&limit=500"),
            (Origin::Newest, "a+b==", "&limit=500&continue=a%2Bb%3D%3D"),
            (Origin::NewestWhole, "", ""),
            (
                Origin::Cache { oldest: None },
                "",
                "&limit=500&resourceVersion=0",
            ),
            (Origin::Cache { oldest: None }, "a", "&limit=500&continue=a"),
            (
                Origin::Cache { oldest: Some("7") },
                "",
                "&resourceVersion=7&resourceVersionMatch=NotOlderThan",
            ),
        ] {
            assert_eq!(query(&node(), origin, next), format!("{path}{expected}"));
        }
    }
}
