//! The model's end of sockets and listeners.

use std::{collections::VecDeque, io, sync::Arc, time::Duration};

use contiv_renderer::kernel::{
    ListenerEvent, Membership, NetlinkProtocol, NetlinkSocket, Notifications,
};

use parking_lot::Mutex;

use super::{
    errno::Errno,
    process::Process,
    state::{Listener, State},
};

/// The kernel at the other end.
type SharedState = Arc<Mutex<State>>;

/// A socket.
#[derive(Debug)]
pub(super) struct ModelSocket {
    kernel: SharedState,
    protocol: NetlinkProtocol,
    port: u32,
    process: Process,
    send_limit: usize,
    arrived: VecDeque<io::Result<Vec<u8>>>,
}

impl ModelSocket {
    pub(super) const fn new(
        kernel: SharedState,
        protocol: NetlinkProtocol,
        port: u32,
        process: Process,
        send_limit: usize,
    ) -> Self {
        Self {
            kernel,
            protocol,
            port,
            process,
            send_limit,
            arrived: VecDeque::new(),
        }
    }
}

impl NetlinkSocket for ModelSocket {
    fn port(&self) -> u32 {
        self.port
    }

    fn send_limit(&self) -> usize {
        self.send_limit
    }

    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        const EMSGSIZE: i32 = 90;
        if request.len() > self.send_limit {
            return Err(io::Error::from_raw_os_error(EMSGSIZE));
        }
        let mut kernel = self.kernel.lock();
        if self.protocol == NetlinkProtocol::Route {
            self.arrived
                .extend(kernel.send_routing(self.port, request).into_iter().map(Ok));
            return Ok(());
        }
        let answers = kernel.send(self.port, &self.process, request);
        let failed = |errno: Errno| io::Error::from_raw_os_error(errno.0);
        self.arrived.extend(answers.map_err(failed)?);
        Ok(())
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        self.arrived.pop_front().unwrap_or_else(|| {
            self.kernel.lock().stalls += 1;
            Err(io::Error::other(
                "nothing is on its way from the kernel: this would wait endlessly",
            ))
        })
    }

    fn discard(&mut self) {
        self.arrived.clear();
    }
}

impl Drop for ModelSocket {
    fn drop(&mut self) {
        self.kernel.lock().release(self.port);
    }
}

/// The notification socket of a listener.
#[derive(Debug)]
pub(super) struct ModelNotifications {
    kernel: SharedState,
    id: u32,
}

impl ModelNotifications {
    pub(super) const fn new(kernel: SharedState, id: u32) -> Self {
        Self { kernel, id }
    }
}

impl Notifications for ModelNotifications {
    /// Does not wait: notifications are only caused by later requests to the model.
    fn next_event(&mut self, _: Option<Duration>) -> io::Result<ListenerEvent> {
        let mut state = self.kernel.lock();
        let Some(listener) = state.listeners.get_mut(&self.id) else {
            return Ok(ListenerEvent::End);
        };
        let at_rest = if listener.is_closed {
            ListenerEvent::End
        } else {
            ListenerEvent::Silence
        };
        Ok(listener.events.pop_front().unwrap_or(at_rest))
    }
}

impl Drop for ModelNotifications {
    fn drop(&mut self) {
        self.kernel.lock().listeners.remove(&self.id);
    }
}

/// The membership of a listener in the multicast group.
#[derive(Debug)]
pub(super) struct ModelMembership {
    kernel: SharedState,
    id: u32,
}

impl ModelMembership {
    pub(super) const fn new(kernel: SharedState, id: u32) -> Self {
        Self { kernel, id }
    }

    fn change(&self, change: impl FnOnce(&mut Listener)) {
        if let Some(listener) = self.kernel.lock().listeners.get_mut(&self.id) {
            change(listener);
        }
    }
}

impl Membership for ModelMembership {
    fn leave(&self) -> io::Result<()> {
        self.change(|listener| listener.is_member = false);
        Ok(())
    }

    fn rejoin(&self) -> io::Result<()> {
        self.change(|listener| listener.is_member = true);
        Ok(())
    }

    fn report_missed(&self) {
        self.change(|listener| listener.events.push_back(ListenerEvent::Missed));
    }
}

impl Drop for ModelMembership {
    fn drop(&mut self) {
        self.change(|listener| listener.is_closed = true);
    }
}
