//! The errors of the kernel.

use std::fmt;

/// A number of the system's errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub i32);

#[expect(missing_docs, reason = "the names are the system's")]
impl Errno {
    pub const EPERM: Self = Self(1);
    pub const ENOENT: Self = Self(2);
    pub const ESRCH: Self = Self(3);
    pub const EINTR: Self = Self(4);
    pub const E2BIG: Self = Self(7);
    pub const ENOMEM: Self = Self(12);
    pub const EBUSY: Self = Self(16);
    pub const EEXIST: Self = Self(17);
    pub const ENODEV: Self = Self(19);
    pub const EINVAL: Self = Self(22);
    pub const ENFILE: Self = Self(23);
    pub const EMFILE: Self = Self(24);
    pub const EFBIG: Self = Self(27);
    pub const ENOSPC: Self = Self(28);
    pub const EMLINK: Self = Self(31);
    pub const ERANGE: Self = Self(34);
    pub const ENODATA: Self = Self(61);
    pub const EOVERFLOW: Self = Self(75);
    pub const ERESTART: Self = Self(85);
    pub const EOPNOTSUPP: Self = Self(95);
    pub const EAFNOSUPPORT: Self = Self(97);
    pub const ENETDOWN: Self = Self(100);
    pub const ENOBUFS: Self = Self(105);
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

/// Why a message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) errno: Errno,
    /// The offset of the invalid attribute in the message, if the kernel reports it.
    pub(super) at: Option<usize>,
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self { errno, at: None }
    }
}

impl Refusal {
    /// Sets the offset of the invalid attribute.
    pub(super) fn at_attribute(self, at: Option<usize>) -> Self {
        Self { at, ..self }
    }
}

/// The result of a message.
pub(super) type Result<T> = std::result::Result<T, Refusal>;

/// The error as a result.
pub(super) fn refuse<T>(errno: Errno) -> Result<T> {
    Err(errno.into())
}

/// The error as a result, with the offset of the invalid attribute.
pub(super) fn refuse_at<T>(errno: Errno, at: Option<usize>) -> Result<T> {
    Err(Refusal { errno, at })
}
