//! The values in a file of `torch.save`: pickle, read as data. Nothing in it is executed; of
//! functions only those that make tensors are known.

use std::collections::HashMap;

/// A value of a pickle.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PickleValue {
    Integer(i64),
    Text(String),
    Tuple(Vec<PickleValue>),
    Dict(Vec<(PickleValue, PickleValue)>),
    /// A name of Python, such as `torch.BFloat16Storage`.
    Global(String),
    /// Numbers in an entry of the archive: their type's name, and the entry's.
    Storage {
        kind: String,
        entry: String,
    },
    Tensor(PickledTensor),
    /// A value that no reader needs.
    Other,
}

/// A tensor whose numbers are in an entry of the archive.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PickledTensor {
    /// The name of its type, such as `torch.BFloat16Storage`.
    pub kind: String,
    /// The last part of the entry's name.
    pub entry: String,
    /// Index of its first number in the entry.
    pub offset: usize,
    pub shape: Vec<usize>,
    /// Numbers between neighbours of each dimension.
    pub strides: Vec<usize>,
}

/// Maximum number of operations: a file with one tensor has about 60. It bounds how deep values are
/// nested too.
const MOST_OPERATIONS: usize = 2_000;

/// Maximum number of parts of a value that is kept under a number or taken from there, since a few
/// operations that copy the same value twice each would fill any memory.
const MOST_COPIED: usize = 1_000;

/// Values on the stack, or marks between them.
#[derive(Clone, Debug)]
enum StackItem {
    Mark,
    Value(PickleValue),
}

/// Runs the stack machine of a pickle.
struct PickleMachine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<StackItem>,
    memo: HashMap<u32, PickleValue>,
}

/// The value in a pickle.
///
/// # Errors
/// With what is not understood, and where.
pub(super) fn read(bytes: &[u8]) -> Result<PickleValue, String> {
    let mut machine = PickleMachine { bytes, at: 0, stack: Vec::new(), memo: HashMap::new() };
    for _ in 0..MOST_OPERATIONS {
        let at = machine.at;
        let code = machine.take(1)?[0];
        if code == b'.' {
            return machine.pop();
        }
        machine.step(code).map_err(|reason| format!("byte {at} of the pickle: {reason}"))?;
    }
    Err(format!("the pickle has more than {MOST_OPERATIONS} operations, the limit for one tensor"))
}

impl PickleMachine<'_> {
    fn step(&mut self, code: u8) -> Result<(), String> {
        match code {
            // Versions and frames.
            0x80 => self.take(1).map(|_| ()),
            0x95 => self.take(8).map(|_| ()),
            b'(' => {
                self.stack.push(StackItem::Mark);
                Ok(())
            }
            b'0' => self.pop().map(|_| ()),
            b'q' | b'r' | 0x94 => self.keep(code),
            b'h' | b'j' => {
                let key = self.number(if code == b'h' { 1 } else { 4 })?;
                let value = copied(self.memo.get(&(key as u32)).ok_or("a reference to nothing")?)?;
                self.push(value)
            }
            b'K' | b'M' | b'J' | 0x8a | b'X' | 0x8c | b'c' | b'N' | b'G' | 0x88 | 0x89 => self.constant(code),
            b')' | b't' | 0x85..=0x87 | b'}' | b']' => self.collection(code),
            b's' | b'u' | b'a' | b'e' => self.extend(code),
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                match (module, name) {
                    (PickleValue::Text(module), PickleValue::Text(name)) => {
                        self.push(PickleValue::Global(format!("{module}.{name}")))
                    }
                    _ => Err("a name that is not a text".into()),
                }
            }
            b'Q' => {
                let id = self.pop()?;
                self.push(storage(id)?)
            }
            b'R' => {
                let (arguments, function) = (self.pop()?, self.pop()?);
                self.push(called(&function, arguments)?)
            }
            // State of an object that is not needed.
            b'b' => self.pop().map(|_| ()),
            code => Err(format!("the operation {code:#04x} is not known")),
        }
    }

    fn constant(&mut self, code: u8) -> Result<(), String> {
        let value = match code {
            b'K' => PickleValue::Integer(self.number(1)?),
            b'M' => PickleValue::Integer(self.number(2)?),
            b'J' => PickleValue::Integer(i64::from(self.number(4)? as u32 as i32)),
            0x8a => {
                let size = self.number(1)? as usize;
                match self.take(size)? {
                    bytes if size <= 8 => PickleValue::Integer(signed(bytes)),
                    _ => PickleValue::Other,
                }
            }
            b'X' | 0x8c => {
                let size = self.number(if code == b'X' { 4 } else { 1 })? as usize;
                let bytes = self.take(size)?;
                PickleValue::Text(String::from_utf8(bytes.to_vec()).map_err(|_| "a text that is not UTF-8")?)
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                PickleValue::Global(format!("{module}.{name}"))
            }
            b'G' => {
                self.take(8)?;
                PickleValue::Other
            }
            _ => PickleValue::Other,
        };
        self.push(value)
    }

    fn collection(&mut self, code: u8) -> Result<(), String> {
        let value = match code {
            b')' => PickleValue::Tuple(Vec::new()),
            b't' => PickleValue::Tuple(self.above_mark()?),
            b'}' => PickleValue::Dict(Vec::new()),
            b']' => PickleValue::Tuple(Vec::new()),
            _ => {
                let mut values: Vec<PickleValue> = (0x85..=code).map(|_| self.pop()).collect::<Result<_, _>>()?;
                values.reverse();
                PickleValue::Tuple(values)
            }
        };
        self.push(value)
    }

    /// Adds to the collection below.
    fn extend(&mut self, code: u8) -> Result<(), String> {
        let added = match code {
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                vec![key, value]
            }
            b'a' => vec![self.pop()?],
            _ => self.above_mark()?,
        };
        match (self.stack.last_mut(), code) {
            (Some(StackItem::Value(PickleValue::Dict(entries))), b's' | b'u') => {
                let pairs = added.as_chunks::<2>().0;
                entries.extend(pairs.iter().map(|[key, value]| (key.clone(), value.clone())));
                Ok(())
            }
            (Some(StackItem::Value(PickleValue::Tuple(values))), b'a' | b'e') => {
                values.extend(added);
                Ok(())
            }
            _ => Err("nothing to add to".into()),
        }
    }

    /// Stores the last value under a number. A collection that is changed later is stored as it is
    /// now: references to such are of no use here.
    fn keep(&mut self, code: u8) -> Result<(), String> {
        let key = match code {
            b'q' => self.number(1)? as u32,
            b'r' => self.number(4)? as u32,
            _ => self.memo.len() as u32,
        };
        match self.stack.last() {
            Some(StackItem::Value(value)) => {
                self.memo.insert(key, copied(value)?);
                Ok(())
            }
            _ => Err("nothing to store".into()),
        }
    }

    fn push(&mut self, value: PickleValue) -> Result<(), String> {
        self.stack.push(StackItem::Value(value));
        Ok(())
    }

    fn pop(&mut self) -> Result<PickleValue, String> {
        match self.stack.pop() {
            Some(StackItem::Value(value)) => Ok(value),
            _ => Err("a value is missing".into()),
        }
    }

    fn above_mark(&mut self) -> Result<Vec<PickleValue>, String> {
        let mut values = Vec::new();
        loop {
            match self.stack.pop() {
                Some(StackItem::Value(value)) => values.push(value),
                Some(StackItem::Mark) => break,
                None => return Err("a mark is missing".into()),
            }
        }
        values.reverse();
        Ok(values)
    }

    fn take(&mut self, count: usize) -> Result<&[u8], String> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len()).ok_or("it ends too early")?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn number(&mut self, bytes: usize) -> Result<i64, String> {
        Ok(self.take(bytes)?.iter().rev().fold(0, |number, byte| number << 8 | i64::from(*byte)))
    }

    fn line(&mut self) -> Result<String, String> {
        let rest = &self.bytes[self.at..];
        let size = rest.iter().position(|byte| *byte == b'\n').ok_or("it ends too early")?;
        self.at += size + 1;
        String::from_utf8(rest[..size].to_vec()).map_err(|_| "a name that is not UTF-8".into())
    }
}

/// A copy of a value that is not too large.
fn copied(value: &PickleValue) -> Result<PickleValue, String> {
    fn parts(value: &PickleValue) -> usize {
        1 + match value {
            PickleValue::Tuple(values) => values.iter().map(parts).sum(),
            PickleValue::Dict(entries) => entries.iter().map(|(key, value)| parts(key) + parts(value)).sum(),
            _ => 0,
        }
    }
    match parts(value) {
        0..=MOST_COPIED => Ok(value.clone()),
        more => Err(format!("a value of {more} parts is used twice; the limit is {MOST_COPIED}")),
    }
}

fn signed(bytes: &[u8]) -> i64 {
    let negative = bytes.last().is_some_and(|byte| *byte >= 128);
    bytes.iter().rev().fold(if negative { -1 } else { 0 }, |number, byte| number << 8 | i64::from(*byte))
}

/// The storage that a persistent id of `torch.save` names: `("storage", type, entry, device,
/// count)`.
fn storage(id: PickleValue) -> Result<PickleValue, String> {
    match id {
        PickleValue::Tuple(parts) => match parts.as_slice() {
            [PickleValue::Text(word), PickleValue::Global(kind), PickleValue::Text(entry), ..] if word == "storage" => {
                Ok(PickleValue::Storage { kind: kind.clone(), entry: entry.clone() })
            }
            _ => Err("a persistent id that does not name a storage of torch".into()),
        },
        _ => Err("a persistent id that does not name a storage of torch".into()),
    }
}

/// What the functions make that `torch.save` calls for a tensor.
fn called(function: &PickleValue, arguments: PickleValue) -> Result<PickleValue, String> {
    let PickleValue::Global(name) = function else { return Err("a call of something that is not a function".into()) };
    let PickleValue::Tuple(arguments) = arguments else { return Err("a call without a tuple of arguments".into()) };
    let sizes = |value: &PickleValue| -> Result<Vec<usize>, String> {
        let size = |value: &PickleValue| match value {
            PickleValue::Integer(size) => usize::try_from(*size).map_err(|_| "a negative size".to_owned()),
            _ => Err("a size that is not a number".to_owned()),
        };
        match value {
            PickleValue::Tuple(values) => values.iter().map(size).collect(),
            _ => Err("sizes that are not a tuple".into()),
        }
    };
    match (name.as_str(), arguments.as_slice()) {
        (
            "torch._utils._rebuild_tensor_v2",
            [PickleValue::Storage { kind, entry }, PickleValue::Integer(offset), shape, strides, ..],
        ) => Ok(PickleValue::Tensor(PickledTensor {
            kind: kind.clone(),
            entry: entry.clone(),
            offset: usize::try_from(*offset).map_err(|_| "a negative offset")?,
            shape: sizes(shape)?,
            strides: sizes(strides)?,
        })),
        ("torch._utils._rebuild_parameter", [tensor @ PickleValue::Tensor(_), ..]) => Ok(tensor.clone()),
        ("collections.OrderedDict", []) => Ok(PickleValue::Dict(Vec::new())),
        _ => Err(format!("a call of {name}, which makes no tensor")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }

    #[test]
    fn values_that_double_with_each_operation_and_endless_nesting_are_refused() {
        let doubled = [&b"\x80\x04K\x01\x94"[..], &b"h\x00h\x00\x86q\x00".repeat(60), b"."].concat();
        assert!(read(&doubled).is_err_and(|error| error.contains("used twice")));
        let nested = [&b"\x80\x04)"[..], &b"\x85".repeat(1 << 20), b"."].concat();
        assert!(read(&nested).is_err_and(|error| error.contains("more than 2000 operations")));
    }

    #[test]
    fn numbers_texts_and_collections_are_read() {
        assert_eq!(read(b"\x80\x02J\xff\xff\xff\xff."), Ok(PickleValue::Integer(-1)));
        assert_eq!(read(b"\x80\x02\x8a\x03\x00\x00\x01."), Ok(PickleValue::Integer(65_536)));
        assert_eq!(read(b"\x80\x04\x8a\x02\x00\x80."), Ok(PickleValue::Integer(-32_768)));
        let entries = vec![
            (PickleValue::Text("a".into()), PickleValue::Integer(7)),
            (PickleValue::Text("b".into()), PickleValue::Other),
        ];
        assert_eq!(
            read(b"\x80\x02}q\x00(X\x01\x00\x00\x00aK\x07X\x01\x00\x00\x00bNu."),
            Ok(PickleValue::Dict(entries))
        );
        assert!(
            read(b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.").is_err_and(|error| error.contains("os.system"))
        );
    }
}
