//! `contiv trace`

use std::{
    io::Write,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use contiv_model::{Flow, NodeFacts, Protocol, trace};
use serde_json::Value;

use super::{
    Outcome, Terminal, UsageError,
    http_client::{self, Server},
    input::{self, print_problems},
    offline::{Desired, desire},
};

/// Say where a packet goes on a node, and why: service, backends, masquerade, reject or drop
///
/// Asks the agent for what it wants the kernel to do; with -f no agent is needed. As in:
/// contiv trace --from 10.244.1.5 --to 10.96.0.10:53/udp
#[derive(Debug, Args)]
pub(super) struct Trace {
    /// The address of the client
    #[arg(long, value_name = "ADDR")]
    from: IpAddr,

    /// What it connects to, as in 10.96.0.1:443/tcp, IPv6 between brackets; without a protocol it is tcp
    #[arg(long, value_name = "ADDR:PORT/PROTO")]
    to: Destination,

    /// What to print
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,

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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Sentences, for people
    Text,
    /// For programs
    Json,
}

/// Address, port and protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Destination {
    address: SocketAddr,
    protocol: Protocol,
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
        let protocol = match protocol.to_ascii_lowercase().as_str() {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            "sctp" => Protocol::Sctp,
            other => {
                return Err(format!("no service has the protocol {other:?}; known are tcp, udp and sctp"));
            }
        };
        let address = address.parse().map_err(|_| {
            format!("{address:?} is no address with port, as in 10.96.0.1:443 or [fd00::1]:53")
        })?;
        Ok(Self { address, protocol })
    }
}

impl Trace {
    pub(super) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let Destination { address, protocol } = self.to;
        let flow = Flow::new(self.from, address, protocol).map_err(|error| UsageError(error.to_string()))?;
        if self.files.is_empty() {
            self.ask_agent(&flow, terminal)
        } else {
            self.ask_manifests(&flow, terminal)
        }
    }

    fn ask_agent(&self, flow: &Flow, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let format = if self.output == Output::Text { "text" } else { "json" };
        let path = format!(
            "/trace?from={}&to={}&port={}&protocol={}&format={format}",
            flow.from(),
            flow.to(),
            flow.port(),
            flow.protocol()
        );
        let answer = http_client::get(&self.server, &path)?;
        match self.output {
            Output::Text => write!(terminal.out, "{answer}")?,
            Output::Json => {
                let json: Value = serde_json::from_str(&answer)
                    .with_context(|| format!("{} does not answer with JSON", self.server))?;
                writeln!(terminal.out, "{json:#}")?;
            }
        }
        Ok(Outcome::Good)
    }

    fn ask_manifests(&self, flow: &Flow, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let parsed = input::read(&self.files)?;
        print_problems(&parsed.problems, &mut terminal.err)?;
        let Desired { snapshot, is_good } = desire(&parsed, self.node_name.as_deref(), terminal)?;
        let Some(snapshot) = snapshot else {
            return Ok(Outcome::SomeBad);
        };
        if snapshot.node == NodeFacts::default() {
            writeln!(
                terminal.err,
                "note: the input says nothing of this node: node ports answer nowhere, no client is local"
            )?;
        }
        let trace = trace(&snapshot, flow);
        match self.output {
            Output::Text => write!(terminal.out, "{trace}")?,
            Output::Json => writeln!(terminal.out, "{:#}", serde_json::to_value(trace)?)?,
        }
        Ok(Outcome::good_if(is_good))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_address_port_and_protocol() {
        let parsed = |text: &str| text.parse::<Destination>().map(|it| (it.address.to_string(), it.protocol));
        assert_eq!(parsed("10.96.0.1:53/UDP"), Ok(("10.96.0.1:53".to_owned(), Protocol::Udp)));
        assert_eq!(parsed("[fd00::1]:443"), Ok(("[fd00::1]:443".to_owned(), Protocol::Tcp)));
        assert_eq!(parsed("[fd00::1]:443/sctp"), Ok(("[fd00::1]:443".to_owned(), Protocol::Sctp)));
        for (wrong, expected) in
            [("10.96.0.1/tcp", "10.96.0.1:443"), ("web:80/tcp", "web:80"), ("10.96.0.1:80/icmp", "icmp")]
        {
            assert!(parsed(wrong).unwrap_err().contains(expected), "{wrong}: {:?}", parsed(wrong));
        }
    }
}
