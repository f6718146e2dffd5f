//! A small DNS server: one zone, over UDP.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    sync::Arc,
    thread,
    time::Duration,
};

use hickory_proto::{
    op::{Message, MessageType, ResponseCode},
    rr::{
        Name, RData, Record, RecordType,
        rdata::{A, AAAA, SRV},
    },
};
use parking_lot::Mutex;

/// How soon a dropped server ends.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The records of the server.
#[derive(Debug, Clone, Default)]
pub struct Zone {
    records: BTreeMap<(Name, RecordType), Vec<Record>>,
    /// Every question is answered with a server failure.
    pub fails: bool,
}

impl Zone {
    /// Adds an SRV record.
    ///
    /// # Panics
    /// When a name is invalid.
    pub fn srv(
        &mut self,
        name: &str,
        ttl: u32,
        (priority, port): (u16, u16),
        target: &str,
    ) -> &mut Self {
        let data = RData::SRV(SRV::new(priority, 1, port, self::name(target)));
        self.add(name, RecordType::SRV, ttl, data)
    }

    /// Adds an address record.
    ///
    /// # Panics
    /// When the name is invalid.
    pub fn address(&mut self, name: &str, ttl: u32, address: IpAddr) -> &mut Self {
        match address {
            IpAddr::V4(address) => self.add(name, RecordType::A, ttl, RData::A(A(address))),
            IpAddr::V6(address) => {
                self.add(name, RecordType::AAAA, ttl, RData::AAAA(AAAA(address)))
            }
        }
    }

    fn add(&mut self, name: &str, record_type: RecordType, ttl: u32, data: RData) -> &mut Self {
        let name = self::name(name);
        let record = Record::from_rdata(name.clone(), ttl, data);
        self.records
            .entry((name, record_type))
            .or_default()
            .push(record);
        self
    }

    fn answer(&self, question: &Message) -> Message {
        let mut answer = Message::response(question.metadata.id, question.metadata.op_code);
        answer.metadata.message_type = MessageType::Response;
        answer.metadata.authoritative = true;
        answer.metadata.recursion_desired = question.metadata.recursion_desired;
        answer.metadata.recursion_available = true;
        answer.add_queries(question.queries.clone());
        if self.fails {
            answer.metadata.response_code = ResponseCode::ServFail;
            return answer;
        }
        for query in &question.queries {
            let name = query.name().to_lowercase();
            match self.records.get(&(name.clone(), query.query_type())) {
                Some(records) => drop(answer.add_answers(records.iter().cloned())),
                None if self.records.keys().any(|(of, _)| *of == name) => {}
                None => answer.metadata.response_code = ResponseCode::NXDomain,
            }
        }
        answer
    }
}

/// A running server. It ends when this is dropped.
#[derive(Debug)]
pub struct DnsServer {
    address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
}

impl DnsServer {
    /// Starts a server on a free loopback port, in its own thread.
    ///
    /// # Errors
    /// When there is no port.
    pub fn start(zone: Zone) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(STOP_CHECK_INTERVAL))?;
        let (address, zone) = (socket.local_addr()?, Arc::new(Mutex::new(zone)));
        let serving = Arc::downgrade(&zone);
        thread::Builder::new()
            .name("dns".to_owned())
            .spawn(move || {
                let mut buffer = [0; 4096];
                while let Some(zone) = serving.upgrade() {
                    let Ok((length, from)) = socket.recv_from(&mut buffer) else {
                        continue;
                    };
                    let Ok(question) = Message::from_vec(&buffer[..length]) else {
                        continue;
                    };
                    if let Ok(answer) = zone.lock().answer(&question).to_vec() {
                        // The client may have disconnected.
                        let _ = socket.send_to(&answer, from);
                    }
                }
            })?;
        Ok(Self { address, zone })
    }

    /// The address of the server.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the records.
    pub fn change(&self, change: impl FnOnce(&mut Zone)) {
        change(&mut self.zone.lock());
    }
}

#[expect(clippy::expect_used, reason = "a test gives names that are names")]
fn name(text: &str) -> Name {
    let mut name = Name::from_utf8(text).expect("a name of DNS");
    name.set_fqdn(true);
    name.to_lowercase()
}
