//! Free ports, each returned only once.

use std::{
    collections::HashSet,
    io,
    net::{Ipv4Addr, TcpListener},
};

/// Hands out ports of the loopback address. No port is returned twice: a server that has just ended
/// may still hold its connections, and a client that retries must not reach the next server.
#[derive(Debug, Default)]
pub struct Ports {
    given: HashSet<u16>,
}

/// Number of attempts to find an unused port.
const TRIES: usize = 64;

impl Ports {
    /// A port on which nothing listens.
    ///
    /// # Errors
    /// When the system provides no new one.
    pub fn fresh(&mut self) -> io::Result<u16> {
        for _ in 0..TRIES {
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
            if self.given.insert(port) {
                return Ok(port);
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "no fresh port on the loopback address"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let mut ports = Ports::default();
        let given: HashSet<u16> = (0..50).map(|_| ports.fresh().expect("a port")).collect();
        assert_eq!(given.len(), 50);
    }
}
