//! kubectl's language for JSON: paths, and templates of texts and paths.
//!
//! Source: <https://kubernetes.io/docs/reference/kubectl/jsonpath/>. As there, a missing field is empty, an index outside of a list is
//! an error, and `$` is the current object, as `@` is.

mod parser;
mod template;

pub(crate) use parser::TemplateError;
pub(crate) use template::{Path, Template, text};

#[cfg(test)]
mod tests;
