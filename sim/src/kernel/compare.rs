//! Compares the model with a real kernel: both get the same random transactions, and must give the same answers and have the
//! same tables afterwards.

mod exchange;
mod generate;
mod render;

use std::{
    fmt, thread,
    time::{Duration, Instant},
};

use contiv_renderer::kernel::Kernel;
use thiserror::Error;

use self::{exchange::Peer, generate::Generator};
use super::model::ModelKernel;

/// The result of a comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The number of compared transactions.
    pub transactions: usize,
    /// The number of their messages.
    pub messages: usize,
    /// The number of transactions that both committed.
    pub committed: usize,
    /// The number of errors that both returned.
    pub errors: usize,
}

/// Why a comparison ended early.
#[derive(Debug, Error)]
pub enum CompareError {
    /// A request to one of them failed.
    #[error("{0}")]
    Kernel(#[from] std::io::Error),
    /// The kernel has tables already, which must not be touched.
    #[error("this network namespace has tables: compare in an empty one, as scripts/simulate does")]
    NotEmpty,
    /// The model differs from the kernel.
    #[error("{0}")]
    Different(Box<Difference>),
}

/// A difference between the model and the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The seed that reproduces it.
    pub seed: u64,
    /// The transaction, from 0.
    pub transaction: usize,
    /// The messages of the request, a line each.
    pub request: Vec<String>,
    /// The lines that only the kernel reports.
    pub kernel: Vec<String>,
    /// The lines that only the model reports.
    pub model: Vec<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            transaction,
            request,
            kernel,
            model,
        } = self;
        writeln!(
            f,
            "seed {seed}, transaction {transaction}: the model is not like the kernel. Asked:"
        )?;
        request
            .iter()
            .try_for_each(|line| writeln!(f, "    {line}"))?;
        writeln!(f, "the kernel alone says:")?;
        kernel
            .iter()
            .try_for_each(|line| writeln!(f, "    {line}"))?;
        writeln!(f, "the model alone says:")?;
        model.iter().try_for_each(|line| writeln!(f, "    {line}"))
    }
}

/// Whether the kernel of this machine loads modules.
fn loads_modules() -> bool {
    std::path::Path::new("/proc/modules").exists()
}

/// After this number of transactions both start again with empty rulesets, so that these do not grow.
const EPISODE_TRANSACTIONS: usize = 200;

/// The kernel keeps the last start element of a transaction until its clock ticks; the model until the transaction ends. So
/// transactions with intervals are at least one tick of the slowest kernel clock apart.
const KERNEL_CLOCK_TICK: Duration = Duration::from_millis(10);

/// Sends `count` transactions to both. `kernel` must be in its own network namespace without tables.
///
/// # Errors
/// When they differ.
pub fn compare(kernel: &dyn Kernel, count: usize, seed: u64) -> Result<Comparison, CompareError> {
    let model = ModelKernel::new();
    let mut peers = [Peer::open(kernel)?, Peer::open(&model)?];
    if !peers[0].tables()?.is_empty() {
        return Err(CompareError::NotEmpty);
    }
    let mut comparison = Comparison::default();
    let mut generator = Generator::new(seed, !loads_modules(), peers[1].port());
    let mut last_about_intervals = None;
    for transaction in 0..count {
        let request = if transaction % EPISODE_TRANSACTIONS == 0 {
            Generator::everything_away()
        } else {
            generator.batch(&model.0.lock().ruleset)
        };
        let [of_kernel, of_model] = &mut peers;
        if let Some(last) = last_about_intervals.filter(|_| request.is_about_intervals) {
            thread::sleep(KERNEL_CLOCK_TICK.saturating_sub(Instant::elapsed(&last)));
        }
        let answers = [
            of_kernel.send_batch(&request.bytes)?,
            of_model.send_batch(&request.bytes)?,
        ];
        if request.is_about_intervals {
            last_about_intervals = Some(Instant::now());
        }
        let differs = |[kernel, model]: [Vec<String>; 2]| {
            let but = |these: &[String], others: &[String]| {
                these
                    .iter()
                    .filter(|line| !others.contains(line))
                    .cloned()
                    .collect()
            };
            CompareError::Different(Box::new(Difference {
                seed,
                transaction,
                request: request.lines.clone(),
                kernel: but(&kernel, &model),
                model: but(&model, &kernel),
            }))
        };
        if answers[0] != answers[1] {
            return Err(differs(answers));
        }
        let tables = [of_kernel.tables()?, of_model.tables()?];
        if tables[0] != tables[1] {
            return Err(differs(tables));
        }
        comparison.transactions += 1;
        comparison.messages += request.lines.len();
        let errors = answers[0]
            .iter()
            .filter(|answer| !answer.ends_with("ok"))
            .count();
        comparison.errors += errors;
        comparison.committed += usize::from(errors == 0);
    }
    let [of_kernel, of_model] = &mut peers;
    let request = Generator::everything_away();
    of_kernel.send_batch(&request.bytes)?;
    of_model.send_batch(&request.bytes)?;
    Ok(comparison)
}
