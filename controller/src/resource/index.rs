//! Indexes: find the objects with a value without scanning all of them.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::object::Object;

/// Names and values that objects carry, and by which others select them.
pub type Labels = BTreeMap<String, String>;

type Values<T> = dyn Fn(&Object<T>) -> Vec<String> + Send + Sync;

/// A way to find objects of one type by values that each of them has any number of.
///
/// - An *owner* or another single reference: [`Index::single`] with the owner's key as value.
/// - Several *references*: [`Index::multi`].
/// - Objects *by their labels*: [`Index::labels`], asked with [`View::selected`](crate::cache::View::selected).
/// - Objects with selectors, *by the labels they select*: [`Index::selectors`], queried with
///   [`View::selecting`](crate::cache::View::selecting).
/// - *Bound references*: when an object's old pointer must lead to its old target, index the pointers that were
///   recorded with the last result, not only the present ones.
pub struct Index<T> {
    name: Arc<str>,
    values: Arc<Values<T>>,
}

impl<T> Index<T> {
    /// An index over any number of values.
    pub fn multi(
        name: &str,
        values: impl Fn(&Object<T>) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            values: Arc::new(values),
        }
    }

    /// An index over at most one value.
    pub fn single(
        name: &str,
        value: impl Fn(&Object<T>) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self::multi(name, move |object| value(object).into_iter().collect())
    }

    /// An index of objects by their labels.
    pub fn labels(
        name: &str,
        labels: impl Fn(&Object<T>) -> Labels + Send + Sync + 'static,
    ) -> Self {
        Self::multi(name, move |object| {
            labels(object).iter().map(pair).collect()
        })
    }

    /// An index of objects that select others by labels; a missing or empty selector selects nothing.
    pub fn selectors(
        name: &str,
        selector: impl Fn(&Object<T>) -> Option<Labels> + Send + Sync + 'static,
    ) -> Self {
        // A selected object has the first label too, so the selector is indexed by that. The others are checked afterwards.
        Self::single(name, move |object| {
            let labels: Vec<String> = selector(object)?.iter().map(pair).collect();
            (!labels.is_empty()).then(|| labels.join(NEXT_LABEL) + NEXT_LABEL)
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The values of an object.
    pub(crate) fn values(&self, object: &Object<T>) -> Vec<String> {
        (self.values)(object)
    }
}

impl<T> Clone for Index<T> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            values: Arc::clone(&self.values),
        }
    }
}

impl<T> fmt::Debug for Index<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Index").field(&self.name).finish()
    }
}

/// The separator between the labels of a selector. No label contains it.
pub(crate) const NEXT_LABEL: &str = "\u{1}";

/// A label as an index value.
pub(crate) fn pair((name, value): (&String, &String)) -> String {
    // No label name contains this.
    format!("{name}\0{value}")
}
