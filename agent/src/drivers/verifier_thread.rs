//! The threads that read dataplanes back from the kernel: one for each renderer with something to verify.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Instant,
};

use contiv_model::Snapshot;
use contiv_node::message::VerifierReport;
use contiv_renderer::Verifier;
use tokio::sync::mpsc;

use super::renderer_thread::RendererSpec;

/// Starts the thread of a renderer; none if it has no verifier. It takes one snapshot at a time, and ends when the sender is
/// dropped.
///
/// # Errors
/// When a thread cannot be started.
pub(super) fn start(
    spec: &RendererSpec,
    reports: mpsc::Sender<VerifierReport>,
) -> io::Result<Option<SyncSender<Arc<Snapshot>>>> {
    let Some(verifier) = spec.verifier() else {
        return Ok(None);
    };
    let (sender, snapshots) = sync_channel(1);
    let thread = thread::Builder::new().name(format!("verify-{}", spec.name()));
    let spec = spec.clone();
    thread.spawn(move || run(&spec, verifier, &snapshots, &reports))?;
    Ok(Some(sender))
}

fn run(
    spec: &RendererSpec,
    verifier: Box<dyn Verifier>,
    snapshots: &Receiver<Arc<Snapshot>>,
    reports: &mpsc::Sender<VerifierReport>,
) {
    let mut slot = Some(verifier);
    for snapshot in snapshots {
        let start = Instant::now();
        // A panic may leave the verifier in an invalid state, so it is dropped.
        let attempt = catch_unwind(AssertUnwindSafe(|| {
            let verifier = slot.take().or_else(|| spec.verifier());
            let mut verifier =
                verifier.ok_or_else(|| "there is nothing to verify any more".to_owned())?;
            let result = verifier
                .verify(&snapshot)
                .map_err(|error| error.to_string());
            slot = Some(verifier);
            result
        }));
        let result =
            attempt.unwrap_or_else(|_| Err("verification panicked; the log says where".to_owned()));
        let renderer = Arc::clone(spec.name());
        if reports
            .blocking_send(VerifierReport {
                renderer,
                result,
                duration: start.elapsed(),
            })
            .is_err()
        {
            return;
        }
    }
}
