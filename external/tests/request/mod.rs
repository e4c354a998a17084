//! Parses requests, for the servers of the tests.

use std::io::BufRead;

/// Path and body of the next request; `None` if the client has closed the connection.
pub fn read(reader: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok().filter(|read| *read > 0)?;
        if header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((first.split_whitespace().nth(1)?.to_owned(), body))
}
