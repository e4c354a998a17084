//! The values in a file of `torch.save`: pickle, read as data. Nothing in it is executed; of
//! functions only those that make tensors are known.

use std::collections::HashMap;

/// A value of a pickle.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Integer(i64),
    Text(String),
    Tuple(Vec<Value>),
    Dict(Vec<(Value, Value)>),
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
enum Item {
    Mark,
    Value(Value),
}

/// Runs the stack machine of a pickle.
struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Item>,
    memo: HashMap<u32, Value>,
}

/// The value in a pickle.
///
/// # Errors
/// With what is not understood, and where.
pub(super) fn read(bytes: &[u8]) -> Result<Value, String> {
    let mut machine = Machine { bytes, at: 0, stack: Vec::new(), memo: HashMap::new() };
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

impl Machine<'_> {
    fn step(&mut self, code: u8) -> Result<(), String> {
        match code {
            // Versions and frames.
            0x80 => self.take(1).map(|_| ()),
            0x95 => self.take(8).map(|_| ()),
            b'(' => {
                self.stack.push(Item::Mark);
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
                    (Value::Text(module), Value::Text(name)) => self.push(Value::Global(format!("{module}.{name}"))),
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
            b'K' => Value::Integer(self.number(1)?),
            b'M' => Value::Integer(self.number(2)?),
            b'J' => Value::Integer(i64::from(self.number(4)? as u32 as i32)),
            0x8a => {
                let size = self.number(1)? as usize;
                match self.take(size)? {
                    bytes if size <= 8 => Value::Integer(signed(bytes)),
                    _ => Value::Other,
                }
            }
            b'X' | 0x8c => {
                let size = self.number(if code == b'X' { 4 } else { 1 })? as usize;
                let bytes = self.take(size)?;
                Value::Text(String::from_utf8(bytes.to_vec()).map_err(|_| "a text that is not UTF-8")?)
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                Value::Global(format!("{module}.{name}"))
            }
            b'G' => {
                self.take(8)?;
                Value::Other
            }
            _ => Value::Other,
        };
        self.push(value)
    }

    fn collection(&mut self, code: u8) -> Result<(), String> {
        let value = match code {
            b')' => Value::Tuple(Vec::new()),
            b't' => Value::Tuple(self.above_mark()?),
            b'}' => Value::Dict(Vec::new()),
            b']' => Value::Tuple(Vec::new()),
            _ => {
                let mut values: Vec<Value> = (0x85..=code).map(|_| self.pop()).collect::<Result<_, _>>()?;
                values.reverse();
                Value::Tuple(values)
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
            (Some(Item::Value(Value::Dict(entries))), b's' | b'u') => {
                let pairs = added.as_chunks::<2>().0;
                entries.extend(pairs.iter().map(|[key, value]| (key.clone(), value.clone())));
                Ok(())
            }
            (Some(Item::Value(Value::Tuple(values))), b'a' | b'e') => {
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
            Some(Item::Value(value)) => {
                self.memo.insert(key, copied(value)?);
                Ok(())
            }
            _ => Err("nothing to store".into()),
        }
    }

    fn push(&mut self, value: Value) -> Result<(), String> {
        self.stack.push(Item::Value(value));
        Ok(())
    }

    fn pop(&mut self) -> Result<Value, String> {
        match self.stack.pop() {
            Some(Item::Value(value)) => Ok(value),
            _ => Err("a value is missing".into()),
        }
    }

    fn above_mark(&mut self) -> Result<Vec<Value>, String> {
        let mut values = Vec::new();
        loop {
            match self.stack.pop() {
                Some(Item::Value(value)) => values.push(value),
                Some(Item::Mark) => break,
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
fn copied(value: &Value) -> Result<Value, String> {
    fn parts(value: &Value) -> usize {
        1 + match value {
            Value::Tuple(values) => values.iter().map(parts).sum(),
            Value::Dict(entries) => entries.iter().map(|(key, value)| parts(key) + parts(value)).sum(),
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
fn storage(id: Value) -> Result<Value, String> {
    match id {
        Value::Tuple(parts) => match parts.as_slice() {
            [Value::Text(word), Value::Global(kind), Value::Text(entry), ..] if word == "storage" => {
                Ok(Value::Storage { kind: kind.clone(), entry: entry.clone() })
            }
            _ => Err("a persistent id that does not name a storage of torch".into()),
        },
        _ => Err("a persistent id that does not name a storage of torch".into()),
    }
}

/// What the functions make that `torch.save` calls for a tensor.
fn called(function: &Value, arguments: Value) -> Result<Value, String> {
    let Value::Global(name) = function else { return Err("a call of something that is not a function".into()) };
    let Value::Tuple(arguments) = arguments else { return Err("a call without a tuple of arguments".into()) };
    let sizes = |value: &Value| -> Result<Vec<usize>, String> {
        let size = |value: &Value| match value {
            Value::Integer(size) => usize::try_from(*size).map_err(|_| "a negative size".to_owned()),
            _ => Err("a size that is not a number".to_owned()),
        };
        match value {
            Value::Tuple(values) => values.iter().map(size).collect(),
            _ => Err("sizes that are not a tuple".into()),
        }
    };
    match (name.as_str(), arguments.as_slice()) {
        (
            "torch._utils._rebuild_tensor_v2",
            [Value::Storage { kind, entry }, Value::Integer(offset), shape, strides, ..],
        ) => Ok(Value::Tensor(PickledTensor {
            kind: kind.clone(),
            entry: entry.clone(),
            offset: usize::try_from(*offset).map_err(|_| "a negative offset")?,
            shape: sizes(shape)?,
            strides: sizes(strides)?,
        })),
        ("torch._utils._rebuild_parameter", [tensor @ Value::Tensor(_), ..]) => Ok(tensor.clone()),
        ("collections.OrderedDict", []) => Ok(Value::Dict(Vec::new())),
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
        assert_eq!(read(b"\x80\x02J\xff\xff\xff\xff."), Ok(Value::Integer(-1)));
        assert_eq!(read(b"\x80\x02\x8a\x03\x00\x00\x01."), Ok(Value::Integer(65_536)));
        assert_eq!(read(b"\x80\x04\x8a\x02\x00\x80."), Ok(Value::Integer(-32_768)));
        let entries = vec![(Value::Text("a".into()), Value::Integer(7)), (Value::Text("b".into()), Value::Other)];
        assert_eq!(read(b"\x80\x02}q\x00(X\x01\x00\x00\x00aK\x07X\x01\x00\x00\x00bNu."), Ok(Value::Dict(entries)));
        assert!(
            read(b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.").is_err_and(|error| error.contains("os.system"))
        );
    }
}
