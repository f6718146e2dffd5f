//! Attempts of the client of a fault.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use contiv_tests::lab::{LabError, Outcome, Result, wait_until};

use super::{
    fault::{Failure, Fault},
    scene::{EVENT_TIMEOUT, LARGE_BYTES, Scene, destination},
};

/// A client whose large packets vanish waits for so long.
const HANG_TIME: Duration = Duration::from_secs(20);

/// Waits until the connections of a fault are answered.
pub(super) fn wait_until_answered(scene: &Scene<'_>, fault: &Fault) -> Result<()> {
    wait_until(&format!("{fault}: is answered"), EVENT_TIMEOUT, || {
        is_answered(scene, fault, Duration::from_secs(3)).unwrap_or(false)
    })
    .map(drop)
}

/// Lets the client of a fault connect several times, and tells whether connections fail as the fault says.
pub(super) fn fails(scene: &Scene<'_>, fault: &Fault) -> Result<bool> {
    let tries = if fault.failure == Failure::Some {
        16
    } else {
        2
    };
    let answers = thread::scope(|scope| {
        let attempts: Vec<_> = (0..tries)
            .map(|_| scope.spawn(|| is_answered(scene, fault, fault.timeout)))
            .collect();
        let join = |attempt: thread::ScopedJoinHandle<'_, Result<bool>>| {
            attempt
                .join()
                .unwrap_or_else(|cause| std::panic::resume_unwind(cause))
        };
        attempts
            .into_iter()
            .map(join)
            .collect::<Result<Vec<bool>>>()
    })?;
    let answered = answers.iter().filter(|is_answered| **is_answered).count();
    Ok(match fault.failure {
        Failure::All | Failure::LargeAnswers | Failure::LargeRequests => answered == 0,
        Failure::Some => answered > 0 && answered < tries,
    })
}

fn is_answered(scene: &Scene<'_>, fault: &Fault, limit: Duration) -> Result<bool> {
    let (address, protocol) = destination(&fault.to)?;
    let from = fault.from.namespace(scene.lab);
    if matches!(
        fault.failure,
        Failure::LargeAnswers | Failure::LargeRequests
    ) {
        let is_request = fault.failure == Failure::LargeRequests;
        return from.run(|| passes_large_packets(address, is_request, limit));
    }
    // Errors of the system other than the usual ones, as for a route of type blackhole, are failures of the connection too.
    Ok(matches!(
        from.ask_within(protocol, address, limit),
        Ok(Outcome::Answered { .. })
    ))
}

/// Connects, sends a large request or none, and reads the answer, which is large without one. A client that waits in vain hangs on.
fn passes_large_packets(server: SocketAddr, is_request: bool, limit: Duration) -> Result<bool> {
    let failed = |error| LabError::system(format!("connect to {server}"), error);
    let mut stream = TcpStream::connect_timeout(&server, limit).map_err(failed)?;
    let mut exchange = || -> io::Result<()> {
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        if is_request {
            stream.write_all(&vec![b'x'; LARGE_BYTES])?;
            return stream.read_exact(&mut [0]);
        }
        stream.read_exact(&mut vec![0; LARGE_BYTES])
    };
    let has_passed = exchange().is_ok();
    if !has_passed {
        thread::spawn(move || {
            thread::sleep(HANG_TIME);
            drop(stream);
        });
    }
    Ok(has_passed)
}
