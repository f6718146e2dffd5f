//! Requests over real sockets.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    sync::OnceLock,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A server's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// In lower case.
    pub(crate) headers: String,
    pub(crate) body: serde_json::Value,
}

/// The answer to a GET; none if nothing listens there.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream
        .write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())
        .await
        .expect("it takes a request");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .await
        .expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    Some(Answer {
        status: head[9..12].parse().expect("a status"),
        headers: head.to_lowercase(),
        body: serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}")),
    })
}

/// The `last` address, below 255, of the loopback interface in a range that no other running test uses.
pub(crate) fn loopback(last: u8) -> IpAddr {
    // The process that listens on the address 255 of a range has the others too. It listens until it ends.
    static RANGE: OnceLock<(u16, TcpListener)> = OnceLock::new();
    let (range, _) = RANGE.get_or_init(|| {
        // Processes that start after each other begin with different ranges.
        let [.., high, low] = std::process::id().to_be_bytes();
        let begin = u16::from_be_bytes([high, low]);
        let reserve = |range| {
            TcpListener::bind((within(range, 255), 31000))
                .ok()
                .map(|held| (range, held))
        };
        let free = (0..RANGES)
            .map(|offset| begin.wrapping_add(offset) % RANGES)
            .find_map(reserve);
        free.expect("a range that no other process has")
    });
    within(*range, last).into()
}

/// How many ranges of 256 addresses there are, from 127.64.0.0 on.
const RANGES: u16 = 1 << 14;

fn within(range: u16, last: u8) -> Ipv4Addr {
    let [high, low] = range.to_be_bytes();
    Ipv4Addr::new(127, 64 | high, low, last)
}
