//! Laws of what is written on the command line.

use super::{
    http_client::Server,
    trace::ends::{Destination, Source},
};
use crate::fuzz::reads_back;

/// What is read is as it is printed; the ends of a flow are asked of an agent by what they were read as.
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
            let interface = source.interface.as_ref().map(|name| format!("%{name}")).unwrap_or_default();
            assert_eq!(format!("{}{interface}", source.address).parse(), Ok(source), "{text:?}");
        }
        Err(error) => assert!(!error.is_empty()),
    }
}
