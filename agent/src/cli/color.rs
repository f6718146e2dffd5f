//! What is good or bad, in colours: only on a terminal, and not with `NO_COLOR`.

use console::StyledObject;

/// How a text is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum TextStyle {
    #[default]
    Plain,
    /// A title.
    Title,
    /// As it should be.
    Good,
    /// Worth a look.
    Warning,
    /// Wrong.
    Bad,
}

impl TextStyle {
    /// The text with its colour, where standard output shows any.
    pub(super) fn paint<T>(self, text: T) -> StyledObject<T> {
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
