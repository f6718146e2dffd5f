//! List and watch, for ever: the one place that knows how to follow a store.
