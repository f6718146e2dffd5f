//! Shortens lists for log messages.

use std::fmt;

/// The number of listed items. There may be hundreds of thousands more.
const MAX_LISTED: usize = 10;

/// The first ten of some items, and how many more there are.
pub(crate) struct FirstTen<'a, T>(pub(crate) &'a [T]);

impl<T: fmt::Display> fmt::Display for FirstTen<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, item) in self.0.iter().take(MAX_LISTED).enumerate() {
            write!(f, "{}{item}", if number == 0 { "" } else { ", " })?;
        }
        match self.0.len().saturating_sub(MAX_LISTED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_beyond_ten_are_counted() {
        let listed = |count: usize| FirstTen(&(1..=count).collect::<Vec<_>>()).to_string();
        assert_eq!(listed(0), "");
        assert_eq!(listed(2), "1, 2");
        assert_eq!(listed(10), "1, 2, 3, 4, 5, 6, 7, 8, 9, 10");
        assert_eq!(listed(1010), "1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 1000 more");
    }
}
