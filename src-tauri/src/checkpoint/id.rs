//! The name of a checkpoint: how far the training had come.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// How far a training had come when a checkpoint was saved. Ordered by that, the earlier first.
///
/// As text `e0012-b000480`, which is also the name of its folder; larger numbers have more digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointId {
    // First, since the derived order compares fields from the top.
    /// Batches trained since the run began.
    pub n_batches: u64,
    /// Epochs completed, 0 inside the first one.
    pub epoch: u32,
}

/// A text that is no checkpoint's name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no name of a checkpoint; one looks like e0012-b000480")]
pub struct InvalidCheckpointId(pub String);

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{:04}-b{:06}", self.epoch, self.n_batches)
    }
}

impl FromStr for CheckpointId {
    type Err = InvalidCheckpointId;

    /// Takes the one spelling that [`Display`](fmt::Display) gives, so that an id has one folder.
    fn from_str(text: &str) -> Result<Self, InvalidCheckpointId> {
        read_numbers(text).filter(|id| id.to_string() == text).ok_or_else(|| InvalidCheckpointId(text.to_owned()))
    }
}

fn read_numbers(text: &str) -> Option<CheckpointId> {
    let (epoch, n_batches) = text.strip_prefix('e')?.split_once("-b")?;
    Some(CheckpointId { n_batches: n_batches.parse().ok()?, epoch: epoch.parse().ok()? })
}

impl Serialize for CheckpointId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CheckpointId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(epoch: u32, n_batches: u64) -> CheckpointId {
        CheckpointId { n_batches, epoch }
    }

    #[test]
    fn an_id_comes_back_from_its_text() {
        for (id, text) in [
            (id(12, 480), "e0012-b000480"),
            (id(0, 0), "e0000-b000000"),
            (id(12_345, 12_345_678), "e12345-b12345678"),
            (id(u32::MAX, u64::MAX), "e4294967295-b18446744073709551615"),
        ] {
            assert_eq!(id.to_string(), text);
            assert_eq!(text.parse(), Ok(id));
            assert_eq!(serde_json::to_string(&id).unwrap(), format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<CheckpointId>(&format!("\"{text}\"")).unwrap(), id);
        }
    }

    #[test]
    fn other_spellings_are_refused() {
        for text in [
            "",
            "e12-b480",
            "e0012-b00480",
            "e00012-b000480",
            "E0012-b000480",
            "e+012-b000480",
            "e0012-b000480 ",
            "e0012-b000480-2",
            ".e0012-b000480.7.tmp",
            "e0012-b18446744073709551616",
            "e0012/b000480",
        ] {
            assert!(text.parse::<CheckpointId>().is_err(), "`{text}`");
        }
    }

    #[test]
    fn the_order_is_that_of_the_batches() {
        assert!(id(9, 99) < id(1, 100), "batches decide, also against the epoch and the text");
        assert!(id(1, 100) < id(2, 100));
    }
}
