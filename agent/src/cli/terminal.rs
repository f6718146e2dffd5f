//! Where commands print to.

use std::io::{self, Write};

/// Where commands print to: results to `out`, everything else to `err`.
pub(super) struct Terminal {
    pub(super) out: io::StdoutLock<'static>,
    pub(super) err: Box<dyn Write>,
}
