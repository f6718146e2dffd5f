//! Compares the agent's trace of a flow with the kernel's tables.

use contiv_model::Trace;
use contiv_renderer::nftables::{Inspector, differences};
use contiv_tests::{
    agent::Agent,
    lab::{Lab, Result},
};

use crate::flows::unexpected;

/// Checks that the agent's trace of a flow contains `expected`, and that the kernel's tables agree. `query` is that of `GET /trace`.
pub(crate) fn check_explanation(
    lab: &Lab,
    agent: &Agent<'_>,
    query: &str,
    expected: &str,
) -> Result<()> {
    let path = format!("/trace?{query}");
    let trace: Trace =
        serde_json::from_value(agent.http("GET", &path)?.json()?).map_err(unexpected)?;
    assert!(trace.to_string().contains(expected), "{trace}");
    let answer = lab.node.run(|| {
        let mut inspector = Inspector::open().map_err(unexpected)?;
        assert_eq!(inspector.rules().to_vec(), Vec::<String>::new());
        inspector.evaluate(&trace.flow).map_err(unexpected)
    })?;
    assert_eq!(
        differences(&trace, &answer),
        Vec::<String>::new(),
        "{trace}{answer}"
    );
    Ok(())
}
