//! How a store shows that a message of it was lost, repeated, reordered or altered.

/// What a message of a store contradicts. Whoever sees one lists again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inconsistency {
    /// A change came after a later one, or twice.
    Order,
    /// A change of a key does not continue what is known of it.
    Version,
    /// A list has other keys than it says.
    Count,
    /// A list is older than what was known before.
    OldList,
    /// An event of a watch cannot be used.
    Unusable,
    /// The history has a change that was not delivered.
    Missed,
    /// A change was delivered otherwise than it is in the history.
    Altered,
    /// A change was delivered that the history does not have.
    NotInHistory,
}

impl Inconsistency {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Order,
        Self::Version,
        Self::Count,
        Self::OldList,
        Self::Unusable,
        Self::Missed,
        Self::Altered,
        Self::NotInHistory,
    ];

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Version => "version",
            Self::Count => "count",
            Self::OldList => "old-list",
            Self::Unusable => "unusable",
            Self::Missed => "missed",
            Self::Altered => "altered",
            Self::NotInHistory => "not-in-history",
        }
    }
}
