//! The result of a command.

/// The result of a command without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Good,
    /// The rest succeeded; the problems have been printed.
    SomeBad,
}

impl Outcome {
    pub(super) const fn good_if(is_good: bool) -> Self {
        if is_good { Self::Good } else { Self::SomeBad }
    }
}
