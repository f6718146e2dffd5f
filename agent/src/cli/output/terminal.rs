//! The output of commands.

use std::io::{self, Write};

/// The output of commands: results go to `out`, everything else to `err`.
pub(crate) struct Terminal {
    pub(crate) out: io::StdoutLock<'static>,
    pub(crate) err: Box<dyn Write>,
}
