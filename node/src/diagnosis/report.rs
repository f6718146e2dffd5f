//! The steps of a connection's way, and what was found at them.

use contiv_model::Flow;
use serde::{Deserialize, Serialize};

use super::cause::Cause;

/// What is known of a connection's way, and why it fails.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// The connection; none if its ends are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<Flow>,
    /// The steps of its way, in order.
    pub steps: Vec<Step>,
    /// Why it fails; none if nothing is found that would make it fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Finding>,
    /// What else was found that would make it fail, or may, in the order of the way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Finding>,
    /// Why the kernel could not be looked at: then no cause says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

impl Diagnosis {
    /// True if the kernel was looked at, and nothing was found that makes the connection fail, or may.
    pub const fn is_good(&self) -> bool {
        self.cause.is_none() && self.unknown.is_none()
    }
}

/// A step of a connection's way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Which.
    pub name: StepName,
    /// How it looks.
    pub state: StepState,
    /// What is known of it.
    pub text: String,
}

/// The names of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepName {
    /// The agent, and its store.
    Agent,
    /// The service.
    Service,
    /// Its endpoints.
    Endpoints,
    /// The agent's table in the kernel.
    Table,
    /// The rules of other programs.
    Rules,
    /// The route to the backend.
    Route,
    /// The link to the backend.
    Link,
    /// The way of the answer.
    Answer,
    /// The tables of the kernel that all connections share.
    Limits,
    /// What real attempts met.
    Attempts,
    /// What an attempt of this node met.
    Probe,
}

/// How a step looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepState {
    /// Nothing is wrong.
    Ok,
    /// It stops the connection, or attempts failed there.
    Fails,
    /// It may.
    Unclear,
    /// Nothing is known, or the connection does not get so far.
    Unknown,
}

/// One reason for which a connection fails, or may fail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Which.
    pub code: Cause,
    /// The step where it was found.
    pub step: StepName,
    /// How sure it is.
    pub certainty: Certainty,
    /// What is wrong, as a sentence without a stop.
    pub text: String,
    /// What to do, as a sentence without a stop.
    pub advice: String,
}

/// How sure a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Certainty {
    /// It stops the connection, or some of them where there are several backends.
    Certain,
    /// Real attempts, or those of this node, failed so.
    Observed,
    /// It may; nothing proves it.
    Possible,
}

/// What was found so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) steps: Vec<Step>,
    pub(super) findings: Vec<Finding>,
}

impl Report {
    pub(super) fn step(&mut self, name: StepName, state: StepState, text: impl Into<String>) {
        let text = text.into();
        self.steps.push(Step { name, state, text });
    }

    /// A finding, and its step.
    pub(super) fn fails(
        &mut self,
        step: StepName,
        code: Cause,
        certainty: Certainty,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) {
        let (text, advice) = (text.into(), advice.into());
        let state = match certainty {
            Certainty::Certain | Certainty::Observed => StepState::Fails,
            Certainty::Possible => StepState::Unclear,
        };
        self.step(step, state, text.clone());
        self.findings.push(Finding {
            code,
            step,
            certainty,
            text,
            advice,
        });
    }

    /// Whether a step has a finding.
    pub(super) fn has(&self, step: StepName) -> bool {
        self.steps
            .iter()
            .any(|it| it.name == step && it.state != StepState::Ok)
    }
}
