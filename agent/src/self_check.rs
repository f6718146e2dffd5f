//! Proves the dataplane: every few seconds the agent connects to a service of its own, which its rules must lead to its own listener.
//!
//! Nothing outside of this node is involved: the first packet is translated in the output hook to a loopback address. Its addresses are
//! none that networks use: of IPv4 a link-local one, of IPv6 one of the discard-only block (RFC 6666).

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use contiv_model::{Backend, ContivService, Flow, Protocol, ServiceId, ServicePort};
use contiv_node::Input;
use nix::libc::{EADDRNOTAVAIL, EAFNOSUPPORT, ENETUNREACH};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc::Sender,
    time::{sleep, timeout},
};
use tracing::debug;

use crate::{drivers::Request, http::Api};

const FRONTENDS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 77, 77)),
    IpAddr::V6(Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0x77, 0x77)),
];
/// The port of the service `echo`.
const PORT: u16 = 7;
const INTERVAL: Duration = Duration::from_secs(5);
/// A failure is tried again once, after this: the table may be being replaced.
const SECOND_TRY: Duration = Duration::from_secs(1);
/// How long a connection within this node may take.
const LIMIT: Duration = Duration::from_secs(1);
/// What the listener sends, so that no other server is taken for it.
const GREETING: &[u8; 16] = b"contiv-self-chk\n";

/// The listeners, one for each family that this node has.
#[derive(Debug)]
pub(crate) struct SelfCheck {
    listeners: Vec<(SocketAddr, TcpListener)>,
}

impl SelfCheck {
    /// Listens on loopback addresses, at ports that the kernel chooses.
    ///
    /// # Errors
    /// When it cannot listen at any.
    pub(crate) async fn open() -> io::Result<Self> {
        let mut listeners = Vec::new();
        for frontend in FRONTENDS {
            let loopback: IpAddr = match frontend {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            };
            match TcpListener::bind((loopback, 0)).await {
                Ok(listener) => listeners.push((SocketAddr::new(frontend, PORT), listener)),
                // A node may have one family only.
                Err(error) if is_without_family(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { listeners })
    }

    /// The service that leads to the listeners.
    ///
    /// # Errors
    /// When the address of a listener is not known.
    pub(crate) fn service(&self) -> io::Result<Arc<ContivService>> {
        let mut service = ContivService::new(ServiceId::new("contiv", "self-check"));
        let mut port = ServicePort {
            port: PORT,
            protocol: Protocol::Tcp,
            name: "".into(),
            node_port: None,
            backends: Vec::new(),
        };
        for (frontend, listener) in &self.listeners {
            service.cluster_ips.insert(frontend.ip());
            port.backends.push(Backend {
                local: true,
                host_network: true,
                ..Backend::new(listener.local_addr()?)
            });
        }
        service.ports.push(port);
        Ok(Arc::new(service))
    }

    /// Greets all that connect, and connects, until the node ends.
    pub(crate) async fn run(self, api: Api, requests: Sender<Request>) {
        let mut frontends = Vec::new();
        for (frontend, listener) in self.listeners {
            frontends.push(frontend);
            tokio::spawn(greet(listener));
        }
        loop {
            sleep(INTERVAL).await;
            // Before that the rules are those of an agent before.
            if !api.is_ready().await {
                if requests.is_closed() {
                    return;
                }
                continue;
            }
            let failure = first_failure(&frontends, &api).await;
            let input = Request::Input(Input::SelfChecked(failure));
            if requests.send(input).await.is_err() {
                return;
            }
        }
    }
}

/// The step at which the first family fails that does.
async fn first_failure(frontends: &[SocketAddr], api: &Api) -> Option<String> {
    for frontend in frontends {
        if connect(*frontend).await.is_ok() {
            continue;
        }
        sleep(SECOND_TRY).await;
        if let Err(error) = connect(*frontend).await {
            return Some(explain(*frontend, &error, api).await);
        }
    }
    None
}

/// Connects through the rules. A node without a route to other networks cannot use services in that family: there is nothing to prove.
async fn connect(frontend: SocketAddr) -> io::Result<()> {
    let exchange = async {
        let mut stream = TcpStream::connect(frontend).await?;
        let mut greeting = [0; GREETING.len()];
        stream.read_exact(&mut greeting).await?;
        if greeting == *GREETING {
            Ok(())
        } else {
            Err(io::Error::other("another server answers"))
        }
    };
    match timeout(LIMIT, exchange).await {
        Err(_) => Err(io::Error::new(
            ErrorKind::TimedOut,
            "no answer within a second",
        )),
        Ok(Err(error)) if is_without_family(&error) => Ok(()),
        Ok(done) => done,
    }
}

fn is_without_family(error: &io::Error) -> bool {
    let without = [ENETUNREACH, EADDRNOTAVAIL, EAFNOSUPPORT];
    error
        .raw_os_error()
        .is_some_and(|code| without.contains(&code))
}

/// What stops the connection, as `contiv why` finds it.
async fn explain(frontend: SocketAddr, error: &io::Error, api: &Api) -> String {
    let loopback: IpAddr = match frontend {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let cause = match Flow::new(loopback, frontend, Protocol::Tcp) {
        Ok(flow) => match api.diagnose(flow).await {
            Ok(diagnosis) => diagnosis.cause.map(|cause| cause.text),
            Err(problem) => {
                debug!(problem, "why the own connection fails is not known");
                None
            }
        },
        Err(_) => None,
    };
    let cause = cause.map_or_else(String::new, |text| format!(": {text}"));
    format!("{frontend}: {error}{cause}")
}

/// Greets who connects, for as long as the process runs.
async fn greet(listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((mut stream, _)) => {
                // The buffer of a new socket has room.
                let _ = stream.write_all(GREETING).await;
            }
            Err(_) => sleep(SECOND_TRY).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn service_leads_to_listeners_that_greet() {
        let check = SelfCheck::open().await.unwrap();
        let service = check.service().unwrap();
        assert_eq!(service.cluster_ips.len(), check.listeners.len());
        let backends: Vec<SocketAddr> = (service.ports[0].backends.iter())
            .map(Backend::endpoint)
            .collect();
        assert!(!backends.is_empty());
        for (_, listener) in check.listeners {
            tokio::spawn(greet(listener));
        }
        for backend in backends {
            connect(backend).await.unwrap();
        }
    }

    #[tokio::test]
    async fn other_server_is_not_taken_for_the_own_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad").await.unwrap();
        });
        let error = connect(address).await.unwrap_err();
        assert!(error.to_string().contains("another server"), "{error}");
    }
}
