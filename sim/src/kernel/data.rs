//! Values, and verdicts that lead to chains.

/// A number within a table, of a chain, a rule or a set.
pub(crate) type Handle = u64;

/// The content of a register or an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Data {
    Value(Vec<u8>),
    Verdict(Verdict),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) code: i32,
    /// The target of a jump or goto.
    pub(crate) chain: Option<Handle>,
}

impl Data {
    /// The target chain of a verdict.
    pub(crate) const fn chain(&self) -> Option<Handle> {
        match self {
            Self::Verdict(verdict) => verdict.chain,
            Self::Value(_) => None,
        }
    }
}
