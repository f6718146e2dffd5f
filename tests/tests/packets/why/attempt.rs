//! Attempts of the client of a fault.

use std::{
    io::Read,
    net::{SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use contiv_tests::lab::{Outcome, Result, wait_until};

use super::{
    fault::{Failure, Fault},
    scene::{EVENT_TIMEOUT, LARGE_ANSWER, Scene, destination},
};

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
        Failure::All | Failure::LargeAnswers => answered == 0,
        Failure::Some => answered > 0 && answered < tries,
    })
}

fn is_answered(scene: &Scene<'_>, fault: &Fault, limit: Duration) -> Result<bool> {
    let (address, protocol) = destination(&fault.to)?;
    let from = fault.from.namespace(scene.lab);
    if fault.failure == Failure::LargeAnswers {
        return from.run(|| Ok(large_answer_arrives(address, limit)));
    }
    // Errors of the system other than the usual ones, as for a route of type blackhole, are failures of the connection too.
    Ok(matches!(
        from.ask_within(protocol, address, limit),
        Ok(Outcome::Answered { .. })
    ))
}

/// Connects, and reads all of a large answer.
fn large_answer_arrives(server: SocketAddr, limit: Duration) -> bool {
    let read = || {
        let mut stream = TcpStream::connect_timeout(&server, limit)?;
        stream.set_read_timeout(Some(limit))?;
        let mut buffer = vec![0; LARGE_ANSWER];
        stream.read_exact(&mut buffer)
    };
    read().is_ok()
}
