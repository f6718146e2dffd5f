//! Checks that the API server still has the history that a reader has followed.
//!
//! An API server whose etcd was restored from a backup, or replaced, does not report it: to a watch from a future version it
//! sends nothing. So its version is compared with that of the reader, and the reader's last objects are read again.

use contiv_proto::Key;

use super::{
    client::Client,
    failure::Failure,
    list::{newest_version, object_version},
    progress::Versions,
    resource::Resource,
};
use crate::{Position, StoreError};

/// Fails if the newest version of a type is older than the reader's.
pub(super) async fn confirm_version(
    client: &Client,
    resource: &Resource,
    version: &str,
) -> Result<(), Failure> {
    // A version that is not a number cannot be compared.
    let Ok(requested) = version.parse::<i64>() else {
        return Ok(());
    };
    match newest_version(client, resource).await?.parse::<i64>() {
        Ok(newest) if newest < requested => Err(StoreError::Rewound { requested, newest }.into()),
        _ => Ok(()),
    }
}

/// Fails if a type was listed at an older version than a known one.
pub(super) fn confirm_reached(reached: &Versions, listed: &Versions) -> Result<(), StoreError> {
    for (kind, version) in listed {
        // A version that is not a number cannot be compared.
        let versions = reached
            .get(kind)
            .and_then(|reached| reached.parse().ok())
            .zip(version.parse().ok());
        if let Some((requested, newest)) = versions.filter(|(reached, listed)| listed < reached) {
            return Err(StoreError::Rewound { requested, newest });
        }
    }
    Ok(())
}

/// Fails if the object that the reader saw written last, or deleted last, differs at the versions of the reader.
pub(super) async fn confirm(
    client: &Client,
    resources: &[Resource],
    versions: &Versions,
    position: &Position,
) -> Result<(), Failure> {
    let written = position
        .written()
        .last()
        .map(|written| (written.key.as_str(), Some(written.mod_revision)));
    let deleted = position.deleted().last().map(|key| (key, None));
    for (path, expected) in written.into_iter().chain(deleted) {
        let Ok(Some(key)) = Key::parse(path) else {
            continue;
        };
        let followed = resources
            .iter()
            .find(|resource| resource.kind == key.kind());
        let version = versions
            .get(&key.kind())
            .filter(|version| !version.is_empty());
        let Some((resource, version)) = followed.zip(version) else {
            continue;
        };
        // If it is unchanged now, it was so then. Otherwise it may have changed since, and the old version is read.
        if object_version(client, resource, &key, None).await? == expected {
            continue;
        }
        if object_version(client, resource, &key, Some(version)).await? != expected {
            let replaced = StoreError::Replaced {
                revision: position.revision(),
                key: path.to_owned(),
            };
            return Err(replaced.into());
        }
    }
    Ok(())
}
