//! A diagnosis for people: the steps, then the cause and what to do.

use std::fmt::{self, Display, Formatter};

use super::report::{Certainty, Diagnosis, Finding, StepName, StepState};

impl Display for StepName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Agent => "agent",
            Self::Service => "service",
            Self::Endpoints => "endpoints",
            Self::Table => "table",
            Self::Rules => "rules",
            Self::Route => "route",
            Self::Link => "link",
            Self::Answer => "answer",
            Self::Limits => "limits",
            Self::Attempts => "attempts",
            Self::Probe => "probe",
        })
    }
}

impl Display for StepState {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Fails => "FAILS",
            Self::Unclear => "unclear",
            Self::Unknown => "-",
        })
    }
}

impl Display for Diagnosis {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            flow,
            steps,
            cause,
            others,
            unknown,
        } = self;
        if let Some(flow) = flow {
            writeln!(f, "{flow}\n")?;
        }
        for step in steps {
            writeln!(f, "{:<9} {:<7} {}", step.name, step.state, step.text)?;
        }
        writeln!(f)?;
        let Some(Finding {
            certainty,
            text,
            advice,
            ..
        }) = cause
        else {
            match unknown {
                None => writeln!(
                    f,
                    "NO CAUSE FOUND: nothing that could be looked at stops this connection"
                ),
                Some(reason) => writeln!(
                    f,
                    "NOT KNOWN: the kernel of this machine could not be looked at: {reason}"
                ),
            }?;
            return others
                .iter()
                .try_for_each(|other| writeln!(f, "UNCLEAR: {}", other.text));
        };
        let label = match certainty {
            Certainty::Certain | Certainty::Observed => "CAUSE",
            Certainty::Possible => "PERHAPS",
        };
        writeln!(f, "{label}: {text}")?;
        writeln!(f, "DO: {advice}")?;
        others
            .iter()
            .try_for_each(|other| writeln!(f, "ALSO: {}", other.text))
    }
}
