//! Requests to a debug HTTP server in a namespace.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use super::{LabError, Namespace, Result, wait::scaled};

const TIME_LIMIT: Duration = Duration::from_secs(5);

/// The answer of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code, such as 200.
    pub status: u16,
    /// The body.
    pub body: String,
}

impl Response {
    /// The body as JSON.
    pub fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_str(&self.body)
            .map_err(|error| LabError::Unexpected(format!("not JSON ({error}): {}", self.body)))
    }
}

impl Namespace {
    /// One request from this namespace, such as `GET` of `/readiness`.
    pub fn http(&self, method: &str, server: SocketAddr, path: &str) -> Result<Response> {
        self.http_with_body(method, server, path, "")
    }

    /// The same with a body.
    pub fn http_with_body(
        &self,
        method: &str,
        server: SocketAddr,
        path: &str,
        body: &str,
    ) -> Result<Response> {
        self.http_within(TIME_LIMIT, method, server, path, body)
    }

    /// The same with a time limit for each step: to connect, and until each part of the answer.
    pub fn http_within(
        &self,
        limit: Duration,
        method: &str,
        server: SocketAddr,
        path: &str,
        body: &str,
    ) -> Result<Response> {
        let failed = |error| LabError::system(format!("{method} http://{server}{path}"), error);
        let answer =
            self.run(|| request(scaled(limit), method, server, path, body).map_err(failed))?;
        parse(&answer)
            .ok_or_else(|| LabError::Unexpected(format!("{method} {path}: not HTTP: {answer:?}")))
    }
}

fn request(
    limit: Duration,
    method: &str,
    server: SocketAddr,
    path: &str,
    body: &str,
) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&server, limit)?;
    stream.set_read_timeout(Some(limit))?;
    // HTTP 1.0: the answer ends with the connection and is not chunked.
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: {server}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn parse(answer: &str) -> Option<Response> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head
        .strip_prefix("HTTP/1.")?
        .split(' ')
        .nth(1)?
        .parse()
        .ok()?;
    Some(Response {
        status,
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_taken_apart_into_status_and_body() {
        let answer = "HTTP/1.0 503 Service Unavailable\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(
            parse(answer),
            Some(Response {
                status: 503,
                body: "{}".to_owned()
            })
        );
        assert_eq!(parse("SSH-2.0-OpenSSH_9.2\r\n"), None);
    }
}
