//! What the data of an EAGLE-3 head's `d2t` tensor says, without keeping it.

/// The tokens that a draft can propose. `d2t` holds offsets: draft id `i` stands for target id `i + d2t[i]`
/// (SGLang `models/llama_eagle3.py`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotVocabulary {
    /// Entries.
    pub length: usize,
    /// Smallest target id that an entry leads to.
    pub lowest: i64,
    /// Largest target id that an entry leads to.
    pub highest: i64,
    /// Whether every offset is nought, so that each draft id stands for itself.
    pub is_identity: bool,
}

impl HotVocabulary {
    /// From the bytes of the tensor; none where the dtype is no integer of 32 or 64 bits, the length does not fit it, or
    /// there is no entry.
    pub fn of(dtype: &str, bytes: &[u8]) -> Option<Self> {
        let offsets: Vec<i64> = match dtype {
            "I64" => words(bytes)?.map(i64::from_le_bytes).collect(),
            "I32" => words(bytes)?.map(|word| i64::from(i32::from_le_bytes(word))).collect(),
            _ => return None,
        };
        let targets = || offsets.iter().zip(0_i64..).map(|(offset, draft)| offset.saturating_add(draft));
        Some(Self {
            length: offsets.len(),
            lowest: targets().min()?,
            highest: targets().max()?,
            is_identity: offsets.iter().all(|offset| *offset == 0),
        })
    }
}

fn words<const WIDTH: usize>(bytes: &[u8]) -> Option<impl Iterator<Item = [u8; WIDTH]>> {
    let (words, rest) = bytes.as_chunks::<WIDTH>();
    rest.is_empty().then(|| words.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_lead_to_targets() {
        let bytes: Vec<u8> = [0_i64, 4, 100].iter().flat_map(|offset| offset.to_le_bytes()).collect();
        let expected = HotVocabulary { length: 3, lowest: 0, highest: 102, is_identity: false };
        assert_eq!(HotVocabulary::of("I64", &bytes), Some(expected));
        assert_eq!(HotVocabulary::of("I32", &[0; 8]).map(|found| found.is_identity), Some(true));
        assert_eq!(HotVocabulary::of("I32", &[0; 7]), None);
        assert_eq!(HotVocabulary::of("F32", &[0; 8]), None);
        assert_eq!(HotVocabulary::of("I64", &[]), None);
        assert_eq!(HotVocabulary::of("I64", &i64::MAX.to_le_bytes()).map(|found| found.highest), Some(i64::MAX));
    }
}
