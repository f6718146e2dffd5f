//! The result of a command.

/// The result of a command without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    /// Something failed, and its problems have been printed; the rest succeeded.
    PartialFailure,
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
