//! The headers of a checkpoint's tensors: names, dtypes and shapes, without data.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value as Json;

use super::lenient::{JsonFileError, json_object};

/// Maximum length of the header of a safetensors file in bytes, as in the format's own reader.
const LONGEST_HEADER: u64 = 100_000_000;

/// Dtype and shape of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorHeader {
    /// As safetensors writes it: `BF16`, `F16`, `F32`, `I64`, …
    pub dtype: String,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
}

/// The tensors of all shards of a checkpoint, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TensorHeaders(pub BTreeMap<String, TensorHeader>);

/// An invalid header or index.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// The length in the first eight bytes is too large.
    #[error("the header claims {found} bytes, more than the {limit} {of}")]
    Length {
        /// The length in the first eight bytes.
        found: u64,
        /// The maximum.
        limit: u64,
        /// What sets the limit.
        of: &'static str,
    },
    /// The JSON is not a valid header.
    #[error("the header is not valid: {0}")]
    Json(#[from] serde_json::Error),
    /// The text of an index is not one.
    #[error(transparent)]
    Index(#[from] JsonFileError),
    /// An index that names something other than a file of the checkpoint.
    #[error("names the shard {name:?}, which is not a file of this checkpoint")]
    Shard {
        /// As written.
        name: String,
    },
    /// A shape whose size overflows.
    #[error("tensor '{name}' has the impossible shape {shape:?}")]
    Shape {
        /// Of the tensor.
        name: String,
        /// As written.
        shape: Vec<usize>,
    },
    /// A tensor whose data length does not match its shape and dtype.
    #[error("tensor '{name}' should have {expected} bytes by its shape and dtype, but has {found}")]
    Size {
        /// Of the tensor.
        name: String,
        /// From the shape and the dtype.
        expected: u64,
        /// From the offsets.
        found: u64,
    },
}

/// The length of the JSON header, from the first eight bytes of a file of `file` bytes.
///
/// # Errors
/// If the header would be longer than the file, or than the format allows.
pub fn header_length(first: [u8; 8], file: u64) -> Result<u64, HeaderError> {
    let found = u64::from_le_bytes(first);
    if found > LONGEST_HEADER {
        return Err(HeaderError::Length { found, limit: LONGEST_HEADER, of: "that the format allows" });
    }
    let limit = file.saturating_sub(8);
    if found > limit {
        return Err(HeaderError::Length { found, limit, of: "that the file holds" });
    }
    Ok(found)
}

/// Whether a name, joined to a folder's path or a URL, can only refer to a file of this name there:
/// at most 255 ASCII letters, digits, `.`, `_` and `-`, the first one not a dot.
pub fn is_plain_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !name.is_empty() && name.len() < 256 && !name.starts_with('.') && name.bytes().all(plain)
}

/// Whether a file of this name contains tensors of the checkpoint, for folders without an index.
/// Files named "consolidated" are a second copy in another layout, and adapters are not weights of
/// the model.
pub fn is_own_file(name: &str) -> bool {
    name.ends_with(".safetensors") && !name.starts_with("consolidated") && !name.starts_with("adapter")
}

/// The contents of a `model.safetensors.index.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TensorIndex {
    /// The file of each tensor, by the tensor's name. After [`parse`](Self::parse) these are files
    /// in the checkpoint's own folder.
    pub shards: BTreeMap<String, String>,
    /// Bytes of all tensors, if the index gives them.
    pub total_size: Option<u64>,
}

impl TensorIndex {
    /// Reads the text of an index.
    ///
    /// # Errors
    /// If the text is not a valid index, or names a shard that is not a safetensors file of the
    /// checkpoint itself: an untrusted index must not refer to other files.
    pub fn parse(text: &str) -> Result<Self, HeaderError> {
        #[derive(Deserialize)]
        struct Index {
            weight_map: BTreeMap<String, String>,
            #[serde(default)]
            metadata: Json,
        }
        let object = json_object(text)?;
        let Index { weight_map, metadata } =
            serde_json::from_value(Json::Object(object)).map_err(JsonFileError::from)?;
        let is_shard = |name: &str| is_plain_name(name) && name.ends_with(".safetensors");
        if let Some(name) = weight_map.values().find(|name| !is_shard(name)) {
            return Err(HeaderError::Shard { name: name.clone() });
        }
        // Some exporters write the size as a float.
        let size = metadata.get("total_size");
        let total_size = size.and_then(Json::as_u64).or_else(|| {
            let size = size?.as_f64().filter(|size| (0.0..9e15).contains(size))?;
            Some(size as u64)
        });
        Ok(Self { shards: weight_map, total_size })
    }

    /// The names of the shards, each once, sorted.
    pub fn files(&self) -> BTreeSet<&str> {
        self.shards.values().map(String::as_str).collect()
    }
}

impl TensorHeaders {
    /// Adds the tensors of one file, given the JSON of its header. Sizes are checked against
    /// shapes, so that later arithmetic on shapes cannot overflow.
    ///
    /// # Errors
    /// If the header is not JSON, or a tensor's shape, dtype and offsets are inconsistent.
    pub fn add_header(&mut self, json: &str) -> Result<(), HeaderError> {
        #[derive(Deserialize)]
        struct TensorEntry {
            dtype: String,
            shape: Vec<usize>,
            data_offsets: (u64, u64),
        }
        let mut entries: BTreeMap<String, serde_json::Value> = serde_json::from_str(json)?;
        // The only key that is no tensor; its values are texts.
        entries.remove("__metadata__");
        for (name, value) in entries {
            let TensorEntry { dtype, shape, data_offsets: (begin, end) } = serde_json::from_value(value)?;
            // A file from outside may claim any sizes, and a wrapped product could look right.
            let elements = shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size as u64));
            let bits = elements.and_then(|elements| elements.checked_mul(bits_of(&dtype).unwrap_or(8)));
            let Some(bits) = bits else { return Err(HeaderError::Shape { name, shape }) };
            let found = end.saturating_sub(begin);
            if bits_of(&dtype).is_some() && bits.div_ceil(8) != found {
                return Err(HeaderError::Size { name, expected: bits.div_ceil(8), found });
            }
            self.0.insert(name, TensorHeader { dtype, shape });
        }
        Ok(())
    }

    /// A tensor by its name or a suffix of it: `fc.weight` also finds `model.fc.weight`.
    pub fn find(&self, suffix: &str) -> Option<&TensorHeader> {
        self.0.get(suffix).or_else(|| {
            self.0
                .iter()
                // Only at a dot: `lm_head.weight` must not be found in `old_lm_head.weight`.
                .find(|(name, _)| name.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.')))
                .map(|(_, header)| header)
        })
    }
}

/// Bits of an element; `None` for dtypes that the format does not define.
fn bits_of(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F4" => 4,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" => 8,
        "U16" | "I16" | "F16" | "BF16" => 16,
        "U32" | "I32" | "F32" => 32,
        "U64" | "I64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expected: Result<usize, &str>) {
        let mut headers = TensorHeaders::default();
        match (headers.add_header(json), expected) {
            (Ok(()), Ok(count)) => assert_eq!(headers.0.len(), count),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (found, expected) => panic!("{json}: {found:?}, not {expected:?}"),
        }
    }

    #[test]
    fn headers_are_checked_before_they_are_believed() {
        check(
            r#"{"__metadata__": {"format": "pt"}, "a": {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]}}"#,
            Ok(1),
        );
        check(r#"{"a": {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 11]}}"#, Err("should have 12 bytes"));
        check(
            r#"{"a": {"dtype": "F32", "shape": [18446744073709551615, 2], "data_offsets": [0, 0]}}"#,
            Err("impossible shape"),
        );
        check(r#"{"a": {"dtype": "F16", "shape": [-1], "data_offsets": [0, 2]}}"#, Err("not valid"));
        check(r#"{"a": 1}"#, Err("not valid"));
        check("[]", Err("not valid"));
    }

    #[test]
    fn a_header_cannot_be_longer_than_its_file() {
        assert_eq!(header_length(10_u64.to_le_bytes(), 100).ok(), Some(10));
        assert!(header_length(93_u64.to_le_bytes(), 100).is_err());
        let huge = header_length((1_u64 << 60).to_le_bytes(), u64::MAX);
        assert!(huge.is_err_and(|error| error.to_string().contains("1152921504606846976")));
    }

    #[test]
    fn an_index_names_the_shard_of_each_tensor() {
        let index = |text| TensorIndex::parse(text);
        let found = index(r#"{"metadata": {"total_size": 12}, "weight_map": {"a.b": "model-1.safetensors"}}"#);
        let found = found.expect("an index");
        assert_eq!(found.shards.get("a.b").map(String::as_str), Some("model-1.safetensors"));
        assert_eq!((found.total_size, found.files().len()), (Some(12), 1));
        let float = index(r#"{"metadata": {"total_size": 12.0}, "weight_map": {}}"#);
        assert_eq!(float.expect("an index").total_size, Some(12));
        assert!(index("{}").is_err());
    }

    #[test]
    fn an_index_leads_nowhere_but_to_shards_of_its_checkpoint() {
        let check = |name: &str, is_one: bool| {
            let text = serde_json::json!({"weight_map": {"a": "model-1.safetensors", "b": name}}).to_string();
            match TensorIndex::parse(&text) {
                Ok(_) => assert!(is_one, "{name:?}"),
                Err(HeaderError::Shard { name: named }) => assert!(!is_one && named == name, "{name:?}, not {named:?}"),
                Err(error) => panic!("{name:?}: {error}"),
            }
        };
        check("model-00001-of-00002.safetensors", true);
        check(&format!("{}.safetensors", "a".repeat(243)), true);
        check(&format!("{}.safetensors", "a".repeat(244)), false);
        for name in [
            "",
            "..",
            ".safetensors",
            "../model.safetensors",
            "/etc/model.safetensors",
            "part/model.safetensors",
            "part\\model.safetensors",
            "c:model.safetensors",
            "model?x.safetensors",
            "model#x.safetensors",
            "model%2e.safetensors",
            "model\n.safetensors",
            "model\0.safetensors",
            "mödel.safetensors",
            "model-1.bin",
            "model.safetensors.",
        ] {
            check(name, false);
        }
    }
}
