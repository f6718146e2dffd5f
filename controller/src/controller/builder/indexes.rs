//! Assigns indexes to the watches of their types.

use std::{any::Any, collections::BTreeSet};

use crate::{
    cache::Index,
    controller::{BuildError, typed_watch::AnyWatch},
    resource::ResourceType,
};

/// An index over objects of any type.
pub(super) struct AnyIndex {
    type_name: String,
    name: String,
    index: Box<dyn Any>,
}

impl AnyIndex {
    pub(super) fn new<U: 'static>(of: &ResourceType<U>, index: Index<U>) -> Self {
        Self {
            type_name: of.name().to_owned(),
            name: index.name().to_owned(),
            index: Box::new(index),
        }
    }
}

/// Adds each index to the watch of its type and returns those of the managed type.
pub(super) fn distribute<T: 'static>(
    indexes: Vec<AnyIndex>,
    managed: &ResourceType<T>,
    watches: &mut [Box<dyn AnyWatch>],
) -> Result<Vec<Index<T>>, BuildError> {
    let mut own: Vec<Index<T>> = Vec::new();
    let mut names = BTreeSet::new();
    for AnyIndex {
        type_name,
        name,
        index,
    } in indexes
    {
        let of_nobody = || BuildError::IndexOfUnwatched {
            resource_type: type_name.clone(),
            index: name.clone(),
        };
        if !names.insert((type_name.clone(), name.clone())) {
            return Err(BuildError::DuplicateIndex {
                resource_type: type_name,
                index: name,
            });
        }
        if type_name == managed.name() {
            own.push(*index.downcast().map_err(|_| of_nobody())?);
        } else {
            let watch = watches
                .iter_mut()
                .find(|watch| watch.type_name() == type_name);
            watch
                .ok_or_else(of_nobody)?
                .take_index(index)
                .map_err(|_| of_nobody())?;
        }
    }
    Ok(own)
}
