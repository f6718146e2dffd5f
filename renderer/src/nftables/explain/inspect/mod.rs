//! Evaluates a flow with the real kernel's elements and rules.

mod content;
mod elements;
mod others;
pub(crate) mod rules;

use std::net::IpAddr;

use contiv_model::Flow;
use thiserror::Error;

use self::elements::Kernel;
pub use self::{content::TableContent, others::OtherChain};
use super::evaluate::{Evaluation, evaluate};
use crate::linux::Linux;
use crate::nftables::{
    kernel::read,
    layout::TABLE,
    netlink::{NetlinkError, Socket},
};

/// Queries the kernel of the network namespace in which it was opened. Changes nothing.
#[derive(Debug)]
pub struct Inspector {
    kernel: Kernel,
    rules: Vec<String>,
}

/// Why a flow cannot be evaluated.
#[derive(Debug, Error)]
pub enum InspectError {
    /// The agent's table does not exist.
    #[error(
        "this network namespace has no table inet {TABLE}, so no service is served here; does the agent run, on this node \
         and with the renderer nftables? Its /renderers says whether it was applied, and POST /controller/resync \
         writes it anew"
    )]
    NoTable,
    /// The sets or base chains are not those of this version.
    #[error(
        "the table inet {TABLE} has other sets or base chains than this version of contiv writes; POST \
         /controller/resync, or a start of the agent, replaces it"
    )]
    OtherShape,
    /// The kernel could not be queried.
    #[error("{0}")]
    Kernel(String),
}

impl From<NetlinkError> for InspectError {
    fn from(error: NetlinkError) -> Self {
        Self::Kernel(error.with_advice("read the table").to_string())
    }
}

/// The content of the table of this network namespace. Needs CAP_NET_ADMIN.
///
/// # Errors
/// When it cannot be read.
pub fn table_content() -> Result<TableContent, InspectError> {
    let mut socket = Socket::open(&Linux::shared())?;
    Ok(content::read_content(&mut socket)?)
}

impl Inspector {
    /// Reads the rules. Needs CAP_NET_ADMIN.
    ///
    /// # Errors
    /// When the table cannot be read, is not there, or is not one of this version.
    pub fn open() -> Result<Self, InspectError> {
        let mut kernel = Kernel::open()?;
        if read::table_header(&mut kernel.socket)?.is_none() {
            return Err(InspectError::NoTable);
        }
        let existing = read::existing(&mut kernel.socket)?;
        if !existing.is_of_this_layout() {
            return Err(InspectError::OtherShape);
        }
        let rules = rules::differences(&mut kernel.socket, &existing)?;
        Ok(Self { kernel, rules })
    }

    /// Descriptions of chains and rules that differ from the agent's. If there are any, the evaluation shows what the elements
    /// would mean to the right rules.
    pub fn rules(&self) -> &[String] {
        &self.rules
    }

    /// Evaluates a new connection, on one consistent state of the tables.
    ///
    /// # Errors
    /// When the kernel refuses, or its tables change too often.
    pub fn evaluate(&mut self, flow: &Flow) -> Result<Evaluation, InspectError> {
        const MAX_ATTEMPTS: usize = 10;
        for _ in 0..MAX_ATTEMPTS {
            let before = self.kernel.socket.generation()?;
            let answer = evaluate(&mut self.kernel, flow)?;
            if self.kernel.socket.generation()? == before {
                return Ok(answer);
            }
        }
        Err(InspectError::Kernel(
            "the kernel's tables change constantly; try again".to_owned(),
        ))
    }

    /// The base chains of other tables that packets to this address pass, in order.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn others(&mut self, address: IpAddr) -> Result<Vec<OtherChain>, InspectError> {
        Ok(others::others(&mut self.kernel.socket, address)?)
    }
}
