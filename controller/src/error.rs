//! The error of code that is given to a controller.

/// Any error of the code that a controller runs.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
