//! Asks the agents of all nodes of a Kubernetes cluster.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use anyhow::{Context, anyhow, bail};
use axum::http::Method;
use clap::Args;
use contiv_store::kube::{KubeAddress, KubeCluster, Node, Pod, PortForward};
use futures::{StreamExt, stream};
use tokio::{runtime::Runtime, time::timeout};

use super::{
    answers::Answers,
    nodes::{ClusterState, NoAnswer, NodeState},
    overview::Overview,
};
use crate::cli::{
    output::{error_chain::chain, listing::Output, watch::Frame},
    selection::selector::Selector,
    source::http_client::Connection,
};

/// The label of the agents' pods, in the chart and in the kustomization.
const AGENTS: &str = "app.kubernetes.io/name=contiv-agent";
/// The name of the port of the debug HTTP in their containers, and its number where no port has the name.
const PORT_NAME: &str = "debug";
const DEFAULT_PORT: u16 = 9999;
/// How many agents are asked at a time.
const AT_A_TIME: usize = 32;

/// Selects the cluster, and its agents.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options for a whole cluster")]
pub(super) struct ClusterArguments {
    /// Ask the agents of a whole Kubernetes cluster; --kubeconfig, --context, --namespace and --selector imply it
    #[arg(long)]
    cluster: bool,

    /// The kubeconfig; in a pod its service account, elsewhere $KUBECONFIG or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig; its current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// Only agents of this namespace; those of all
    #[arg(short, long)]
    namespace: Option<String>,

    /// The labels of the agents' pods; app.kubernetes.io/name=contiv-agent
    #[arg(short = 'l', long, value_name = "LABELS", value_parser = selector)]
    selector: Option<String>,

    /// How long one agent may take to answer
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    request_timeout: Duration,
}

/// The API server selects; it is only checked here.
fn selector(text: &str) -> Result<String, String> {
    text.parse::<Selector>().map(|_| text.to_owned())
}

impl ClusterArguments {
    /// True if the cluster is asked.
    pub(super) fn is_chosen(&self) -> bool {
        self.cluster || self.cluster_flag().is_some()
    }

    /// A flag on the command line that needs a cluster.
    pub(super) fn cluster_flag(&self) -> Option<&'static str> {
        let flags = [
            (self.kubeconfig.is_some(), "--kubeconfig"),
            (self.context.is_some(), "--context"),
            (self.namespace.is_some(), "--namespace"),
            (self.selector.is_some(), "--selector"),
        ];
        flags
            .into_iter()
            .find_map(|(is_given, flag)| is_given.then_some(flag))
    }

    fn pod_selector(&self) -> &str {
        self.selector.as_deref().unwrap_or(AGENTS)
    }
}

/// A cluster whose agents are asked, once or again and again.
#[derive(Debug)]
pub(super) struct ClusterStatus {
    arguments: ClusterArguments,
    runtime: Runtime,
    cluster: KubeCluster,
}

impl ClusterStatus {
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub(super) fn open(arguments: ClusterArguments) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.context("failed to start the runtime")?;
        let address = KubeAddress {
            kubeconfig: arguments.kubeconfig.clone(),
            context: arguments.context.clone(),
            ..KubeAddress::default()
        };
        let cluster = runtime.block_on(KubeCluster::open(&address));
        let cluster =
            cluster.context("no cluster to ask; --kubeconfig and --context choose one")?;
        Ok(Self {
            arguments,
            runtime,
            cluster,
        })
    }

    /// Asks all agents.
    ///
    /// # Errors
    /// When the pods cannot be listed, or there are none.
    pub(super) fn read_frame(&self, output: &Output) -> anyhow::Result<Frame> {
        let state = self.runtime.block_on(ask(&self.cluster, &self.arguments))?;
        state.frame(output)
    }
}

async fn ask(cluster: &KubeCluster, arguments: &ClusterArguments) -> anyhow::Result<ClusterState> {
    let selector = arguments.pod_selector();
    let (pods, known) = tokio::join!(
        cluster.pods(arguments.namespace.as_deref(), selector),
        cluster.nodes()
    );
    let pods = pods.context("failed to list the agents' pods")?;
    if pods.is_empty() {
        let place = arguments.namespace.as_ref().map_or_else(
            || "in any namespace".to_owned(),
            |namespace| format!("in the namespace {namespace}"),
        );
        bail!(
            "{} has no pod with the label {selector} {place}: are the agents installed? -l and -n say which they are",
            cluster.endpoint()
        );
    }
    let asked = pods
        .iter()
        .map(|pod| ask_node(cluster, pod, arguments.request_timeout));
    let mut states: Vec<NodeState> = stream::iter(asked).buffered(AT_A_TIME).collect().await;
    let mut notes = Vec::new();
    match known {
        Ok(known) => states.extend(without_agent(known, &pods)),
        Err(error) => notes.push(format!("nodes without an agent are not shown: {error}")),
    }
    states.sort_by(|one, other| (&one.node, &one.pod).cmp(&(&other.node, &other.pod)));
    Ok(ClusterState {
        nodes: states,
        notes,
    })
}

/// The nodes on which an agent could run and none does.
fn without_agent(nodes: Vec<Node>, pods: &[Pod]) -> impl Iterator<Item = NodeState> {
    let with_agent: BTreeSet<String> = pods.iter().filter_map(|pod| pod.node.clone()).collect();
    let could_run = |node: &Node| {
        node.system
            .as_deref()
            .is_none_or(|system| system == "linux")
    };
    let without = nodes
        .into_iter()
        .filter(move |node| could_run(node) && !with_agent.contains(&node.name));
    without.map(|node| NodeState {
        node: node.name,
        pod: None,
        answer: Err(NoAnswer::new(
            "no agent",
            "no pod of an agent is on it, nor waits for it",
        )),
    })
}

async fn ask_node(cluster: &KubeCluster, pod: &Pod, limit: Duration) -> NodeState {
    let answer = if pod.is_running() {
        let answer = timeout(limit, ask_pod(cluster, pod)).await;
        let answer =
            answer.unwrap_or_else(|_| Err(anyhow!("it has not answered within {limit:?}")));
        answer.map_err(|error| NoAnswer::new("no answer", &chain(&error)))
    } else {
        Err(NoAnswer::new(
            &pod.state,
            pod.reason.as_deref().unwrap_or("its pod does not run"),
        ))
    };
    let node = pod.node.clone().unwrap_or_else(|| "<none>".to_owned());
    NodeState {
        node,
        pod: Some(format!("{}/{}", pod.namespace, pod.name)),
        answer,
    }
}

async fn ask_pod(cluster: &KubeCluster, pod: &Pod) -> anyhow::Result<Box<(Answers, Overview)>> {
    let port = pod.ports.get(PORT_NAME).copied().unwrap_or(DEFAULT_PORT);
    let PortForward { stream, failure } = cluster.forward(pod, port).await?;
    let exchange = async {
        // The kubelet connects to the loopback address of the pod.
        let mut connection =
            Connection::open(stream, "it".to_owned(), format!("localhost:{port}")).await?;
        let answers = Answers::ask(async |path: &str| {
            let answer = connection.request(Method::GET, path).await?;
            serde_json::from_str(&answer).with_context(|| {
                format!("it answered {path} in an unexpected format: is it an agent?")
            })
        });
        let answers = answers.await?;
        let overview = answers
            .read()
            .context("its answers are not those of an agent of this version")?;
        Ok(Box::new((answers, overview)))
    };
    tokio::select! {
        // Where the port cannot be reached the connection ends too, with less of a reason.
        biased;
        Some(reason) = failure => Err(anyhow!(
            "port {port} cannot be reached: {}; does the agent listen on a loopback address?", reason.trim()
        )),
        answers = exchange => answers,
    }
}
