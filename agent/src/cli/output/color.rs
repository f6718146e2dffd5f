//! Colours for good and bad text: only on a terminal, and not with `NO_COLOR`.

use console::StyledObject;

/// The style of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum TextStyle {
    #[default]
    Plain,
    /// A title.
    Title,
    /// As it should be.
    Good,
    /// Needs attention.
    Warning,
    /// Wrong.
    Bad,
}

impl TextStyle {
    /// The text with its colour, if standard output shows colours.
    pub(crate) fn paint<T>(self, text: T) -> StyledObject<T> {
        let plain = console::style(text);
        match self {
            Self::Plain => plain,
            Self::Title => plain.bold(),
            Self::Good => plain.green(),
            Self::Warning => plain.yellow(),
            Self::Bad => plain.red(),
        }
    }
}
