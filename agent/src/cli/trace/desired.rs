//! What is wanted to become of a flow: by a running agent, or by manifests.

use std::{io::Write, path::PathBuf};

use anyhow::Context;
use clap::Args;
use contiv_model::{Flow, NodeFacts, trace};

use crate::cli::{
    Terminal,
    http_client::{self, Server},
    input::{self, print_problems},
    offline::{Desired, desire},
};

/// Whom to ask.
#[derive(Debug, Args)]
pub(super) struct Whom {
    /// Where the agent listens (its --listen)
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9999")]
    server: Server,

    /// Ask these manifests and no agent: a file, a folder with all below it, or - for standard input
    #[arg(short = 'f', long = "filename", value_name = "PATH", num_args = 1.., conflicts_with = "server")]
    files: Vec<PathBuf>,

    /// With -f: on which node [default: the only node of the input, or the first by name]
    #[arg(long, value_name = "NAME", env = "CONTIV_NODE_NAME")]
    node_name: Option<String>,
}

/// Where the answers come from.
pub(super) enum Source<'a> {
    Agent(&'a Server),
    /// Read once: standard input cannot be read again.
    Manifests(Box<contiv_model::Snapshot>),
}

impl Whom {
    /// The source, and whether all of its input was good; no source if none of it was.
    pub(super) fn open(&self, terminal: &mut Terminal) -> anyhow::Result<(Option<Source<'_>>, bool)> {
        if self.files.is_empty() {
            return Ok((Some(Source::Agent(&self.server)), true));
        }
        let parsed = input::read(&self.files)?;
        print_problems(&parsed.problems, &mut terminal.err)?;
        let Desired { snapshot, is_good } = desire(&parsed, self.node_name.as_deref(), terminal)?;
        if snapshot.as_ref().is_some_and(|snapshot| snapshot.node == NodeFacts::default()) {
            writeln!(
                terminal.err,
                "note: the input says nothing of this node: node ports answer nowhere, no client is local"
            )?;
        }
        Ok((snapshot.map(|snapshot| Source::Manifests(Box::new(snapshot))), is_good))
    }
}

impl Source<'_> {
    pub(super) fn ask(&self, flow: &Flow) -> anyhow::Result<contiv_model::Trace> {
        let server = match self {
            Self::Agent(server) => server,
            Self::Manifests(snapshot) => return Ok(trace(snapshot, flow)),
        };
        let (from, to, port, protocol) = (flow.from(), flow.to(), flow.port(), flow.protocol());
        let interface =
            flow.interface().map(|name| format!("&interface={}", in_query(&name.0))).unwrap_or_default();
        let path = format!("/trace?from={from}&to={to}&port={port}&protocol={protocol}{interface}");
        let answer = http_client::get(server, &path)?;
        serde_json::from_str(&answer).with_context(|| {
            format!("{server} does not answer with a trace: is that an agent of this version?")
        })
    }
}

/// Whatever could mean something in a query is written by its number.
fn in_query(text: &str) -> String {
    let byte = |byte: u8| {
        if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_interface_cannot_become_another_argument() {
        assert_eq!(in_query("veth1&to=%"), "veth1%26to%3D%25");
    }
}
