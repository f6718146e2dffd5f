//! The result of a command.

/// The result of a command without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    /// Something failed, and its problems have been printed; the rest succeeded.
    PartialFailure,
    /// The question cannot be answered, and why has been printed. As with diff(1), 1 is an answer.
    Unknown,
}

impl Outcome {
    pub(crate) const fn success_if(is_success: bool) -> Self {
        if is_success {
            Self::Success
        } else {
            Self::PartialFailure
        }
    }
}
