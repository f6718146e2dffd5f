use std::net::Ipv4Addr;

use axum::{Router, extract::ConnectInfo, routing::get};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::*;

/// A server that answers with the client's address.
async fn start(limit: usize) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/", get(async |ConnectInfo(Peer(peer))| peer.to_string()));
    let service = router.into_make_service_with_connect_info::<Peer>();
    tokio::spawn(axum::serve(Connections::at_most(limit).on(listener), service).into_future());
    address
}

async fn request(stream: &mut TcpStream) -> String {
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")
        .await
        .unwrap();
    let mut answer = [0; 1024];
    let length = stream.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

async fn is_open(stream: &mut TcpStream) -> bool {
    timeout(Duration::from_millis(300), stream.read_u8())
        .await
        .is_err()
}

#[test]
fn open_file_limit_is_read_from_the_process() {
    let limits = "Limit  Soft Limit  Hard Limit  Units \nMax open files            1000   524288   files     \n";
    assert_eq!(open_files(&Ok(limits.to_owned())), 1000);
    assert_eq!(
        open_files(&Ok("Max open files unlimited unlimited files".to_owned())),
        1024
    );
    assert!(open_files_limit() >= 64);
}

#[tokio::test]
async fn idle_connections_block_no_client_and_the_oldest_is_closed() {
    let address = start(3).await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut client = TcpStream::connect(address).await.unwrap();
    let answer = request(&mut client).await;
    assert!(
        answer.contains(&client.local_addr().unwrap().to_string()),
        "{answer}"
    );
    assert!(
        is_open(silent.last_mut().unwrap()).await,
        "there is room for three"
    );
    for stream in &mut silent[..48] {
        assert!(!is_open(stream).await);
    }
    assert!(
        request(&mut client).await.contains("200 OK"),
        "a connection can be used again"
    );
}

#[tokio::test]
async fn closed_connections_do_not_count() {
    let address = start(2).await;
    let mut first = TcpStream::connect(address).await.unwrap();
    assert!(request(&mut first).await.contains("200 OK"));
    for _ in 0..20 {
        let mut other = TcpStream::connect(address).await.unwrap();
        assert!(request(&mut other).await.contains("200 OK"));
        other.shutdown().await.unwrap();
        assert!(
            other.read_u8().await.is_err(),
            "the server has closed it too"
        );
    }
    assert!(request(&mut first).await.contains("200 OK"));
}

#[tokio::test(start_paused = true)]
async fn silent_connection_ends_even_within_a_request() {
    let address = start(3).await;
    for sent in ["", "GET / HTTP/1.1\r\nhost: he"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let since = Instant::now();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        assert_eq!(answer, "");
        assert!(
            (IDLE_TIMEOUT..IDLE_TIMEOUT * 2).contains(&since.elapsed()),
            "{:?}",
            since.elapsed()
        );
    }
}
