//! The output of commands.

use std::io::{self, Write};

/// The output of commands: results go to `out`, everything else to `err`.
pub(super) struct Terminal {
    pub(super) out: io::StdoutLock<'static>,
    pub(super) err: Box<dyn Write>,
}
