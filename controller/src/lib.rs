//! A runtime for control loops over a [`contiv_store::Store`].

pub mod queue;
