//! Properties of command-line values.

use super::{
    commands::trace::ends::{Destination, Source},
    source::http_client::Server,
};
use crate::round_trip::reads_back;

/// Parsed values round-trip; the ends of a flow round-trip through the query to an agent.
pub(crate) fn flag(text: &str) {
    reads_back::<Server>(text);
    match text.parse::<Destination>() {
        Ok(Destination { address, protocol }) => {
            let again = format!("{address}/{protocol}").parse();
            assert_eq!(again, Ok(Destination { address, protocol }), "{text:?}");
        }
        Err(error) => assert!(!error.is_empty()),
    }
    match text.parse::<Source>() {
        Ok(source) => {
            let interface = source
                .interface
                .as_ref()
                .map(|name| format!("%{name}"))
                .unwrap_or_default();
            assert_eq!(
                format!("{}{interface}", source.address).parse(),
                Ok(source),
                "{text:?}"
            );
        }
        Err(error) => assert!(!error.is_empty()),
    }
}
