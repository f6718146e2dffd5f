//! The places of stored objects, for users.

use contiv_store::Problem;

/// The place of objects of an API server, which have no file and no key.
const API_SERVER: &str = "the API server";

/// Names the places of the objects of one store.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Places {
    /// Whether the store is an API server, whose keys are internal and mean nothing to users.
    pub(super) is_of_api_server: bool,
}

impl Places {
    /// For this store.
    pub(super) fn of_store(store: &str) -> Self {
        Self {
            is_of_api_server: store.starts_with("kube:"),
        }
    }

    /// The place of a value or manifest that was read from `source`.
    pub(super) fn shown(self, source: &str, object: Option<&String>) -> String {
        let is_key = self.is_of_api_server && object.is_some();
        if is_key {
            API_SERVER.to_owned()
        } else {
            source.to_owned()
        }
    }

    /// A problem with its place in the form of [`Places::shown`].
    pub(super) fn shown_problem(self, problem: &Problem) -> Problem {
        Problem {
            source: self.shown(&problem.source, problem.object.as_ref()),
            ..problem.clone()
        }
    }
}
