//! The lines of a log of any length, in UTF-8 or, with a byte order mark, in UTF-16 (`>` of Windows
//! PowerShell).

use std::io::{self, BufRead, Read};

/// Bytes of a line after which it is cut: more is not a line of a log.
const LONGEST_LINE: u64 = 1 << 24;

/// Calls a function with every line, without its end and without a byte order mark.
pub(super) fn each(mut from: impl BufRead, mut line: impl FnMut(&str)) -> io::Result<()> {
    let unit: Option<fn([u8; 2]) -> u16> = match from.fill_buf()? {
        [0xff, 0xfe, ..] => Some(u16::from_le_bytes),
        [0xfe, 0xff, ..] => Some(u16::from_be_bytes),
        _ => None,
    };
    let mut line = |text: &str| line(text.trim_start_matches('\u{feff}').trim_end_matches(['\n', '\r']));
    if let Some(unit) = unit {
        return wide(from, unit, line);
    }
    let mut bytes = Vec::new();
    while (&mut from).take(LONGEST_LINE).read_until(b'\n', &mut bytes)? > 0 {
        line(&String::from_utf8_lossy(&bytes));
        bytes.clear();
    }
    Ok(())
}

/// The same of UTF-16.
fn wide(from: impl BufRead, unit: fn([u8; 2]) -> u16, mut line: impl FnMut(&str)) -> io::Result<()> {
    let mut units = Vec::new();
    let mut bytes = from.bytes();
    while let Some(first) = bytes.next() {
        let Some(second) = bytes.next() else { break };
        let read = unit([first?, second?]);
        if read == u16::from(b'\n') || units.len() as u64 > LONGEST_LINE {
            line(&String::from_utf16_lossy(&units));
            units.clear();
        } else {
            units.push(read);
        }
    }
    if !units.is_empty() {
        line(&String::from_utf16_lossy(&units));
    }
    Ok(())
}
