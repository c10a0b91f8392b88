//! How the program ends: exit codes, the words that say why, and the last line on stderr.
//!
//! A scheduler acts on the code, a script on the word, a person on the sentence above the line. Knows the errors of
//! other modules only to name them.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::dataset::DatasetError;

/// The number a process of this program ends with; most are those of BSD's `sysexits.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ExitCode {
    /// All epochs were trained, patience ran out, or the command did what was asked.
    Finished = 0,
    /// The command line is wrong: a command, a key, a value or its range.
    Usage = 2,
    /// The dataset cannot be read, is empty, or has no box to learn from.
    DatasetUnusable = 65,
    /// A named file or folder is not there.
    PathMissing = 66,
    /// The named device is absent or not compiled in.
    DeviceAbsent = 69,
    /// A fault of the program, or a loss that is not finite.
    Internal = 70,
    /// The output folder cannot be made.
    CannotCreate = 73,
    /// Reading or writing failed on the way, or the disk is full.
    Io = 74,
    /// Stopped by SIGTERM with a valid checkpoint: run it again to go on.
    Terminated = 75,
    /// The GPU's memory did not suffice; there is a valid checkpoint.
    OutOfMemory = 76,
    /// Another process holds the run.
    Locked = 77,
    /// Each setting is valid, but the model is unknown or settings contradict each other.
    BadConfig = 78,
    /// Stopped by the user, after saving.
    Stopped = 130,
}

/// Declares [`Reason`] with the code and the word of each, so that the three cannot part.
macro_rules! reasons {
    ($( $(#[doc = $doc:literal])+ $Reason:ident => $Code:ident, $word:literal; )+) => {
        /// Why the program ends. Each reason belongs to one [`ExitCode`] and has one word, which stays the same across
        /// versions.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub enum Reason {
            $( $(#[doc = $doc])+ $Reason, )+
        }

        impl Reason {
            /// Every reason, in order of its code.
            pub const ALL: &[Self] = &[$( Self::$Reason, )+];

            pub fn code(self) -> ExitCode {
                match self {
                    $( Self::$Reason => ExitCode::$Code, )+
                }
            }

            /// The reason that a word names.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.word() == word)
            }

            /// One lower-case word without spaces.
            pub fn word(self) -> &'static str {
                match self {
                    $( Self::$Reason => $word, )+
                }
            }
        }
    };
}

reasons! {
    /// `finished`: all was done.
    Finished => Finished, "finished";
    /// `patience`: training ended early, since the fitness had not risen for `patience` epochs.
    Patience => Finished, "patience";
    /// `usage`: no command, an unknown command, or an argument that is not `key=value`.
    Usage => Usage, "usage";
    /// `unknown_key`: no setting has this name.
    UnknownKey => Usage, "unknown_key";
    /// `bad_value`: a value that cannot be read, is out of range, or is missing.
    BadValue => Usage, "bad_value";
    /// `not_supported`: a setting of the reference that this version does not have.
    NotSupported => Usage, "not_supported";
    /// `dataset_unreadable`: the dataset's description or its labels cannot be understood.
    DatasetUnreadable => DatasetUnusable, "dataset_unreadable";
    /// `dataset_empty`: there are no images.
    DatasetEmpty => DatasetUnusable, "dataset_empty";
    /// `no_boxes`: there are images, but the training split has no box.
    NoBoxes => DatasetUnusable, "no_boxes";
    /// `path_missing`: a named file or folder is not there.
    PathMissing => PathMissing, "path_missing";
    /// `device_absent`: the named device is absent or not compiled in.
    DeviceAbsent => DeviceAbsent, "device_absent";
    /// `internal`: a fault of the program.
    Internal => Internal, "internal";
    /// `non_finite_loss`: the loss became NaN or infinite.
    NonFiniteLoss => Internal, "non_finite_loss";
    /// `cannot_create`: the output folder cannot be made.
    CannotCreate => CannotCreate, "cannot_create";
    /// `io`: reading or writing failed.
    Io => Io, "io";
    /// `disk_full`: no space is left.
    DiskFull => Io, "disk_full";
    /// `terminated`: SIGTERM, after saving.
    Terminated => Terminated, "terminated";
    /// `out_of_memory`: the device's memory did not suffice.
    OutOfMemory => OutOfMemory, "out_of_memory";
    /// `locked`: another process holds the run.
    Locked => Locked, "locked";
    /// `unknown_model`: no detector has this name.
    UnknownModel => BadConfig, "unknown_model";
    /// `contradiction`: two settings exclude each other.
    Contradiction => BadConfig, "contradiction";
    /// `stopped`: the user stopped it.
    Stopped => Stopped, "stopped";
}

impl TryFrom<String> for Reason {
    type Error = String;

    fn try_from(word: String) -> Result<Self, Self::Error> {
        Self::from_word(&word).ok_or_else(|| format!("`{word}` is no reason to end"))
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> Self {
        reason.word().to_owned()
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}

impl From<&DatasetError> for Reason {
    fn from(error: &DatasetError) -> Self {
        match error {
            DatasetError::Missing { .. } => Self::PathMissing,
            DatasetError::Unreadable { .. } | DatasetError::UnknownFormat { .. } | DatasetError::Invalid { .. } => {
                Self::DatasetUnreadable
            }
            DatasetError::NoTrainImages { .. } => Self::DatasetEmpty,
            DatasetError::NoTrainBoxes { .. } => Self::NoBoxes,
        }
    }
}

/// The last line on stderr, `exit: CODE REASON checkpoint=PATH`, with `-` where there is no checkpoint.
///
/// The path is the rest of the line, so it may hold spaces; a line break inside it is shown as `\n`.
pub fn exit_line(reason: Reason, checkpoint: Option<&Path>) -> String {
    let path = checkpoint.map_or("-".to_owned(), |path| path.display().to_string().replace('\n', "\\n"));
    format!("exit: {} {} checkpoint={path}", reason.code() as u8, reason.word())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_line_names_code_reason_and_checkpoint() {
        assert_eq!(exit_line(Reason::PathMissing, None), "exit: 66 path_missing checkpoint=-");
        assert_eq!(
            exit_line(Reason::Terminated, Some(Path::new("runs/my exp/checkpoints/e0001-b000004"))),
            "exit: 75 terminated checkpoint=runs/my exp/checkpoints/e0001-b000004"
        );
    }

    #[test]
    fn words_are_distinct_and_without_spaces() {
        let words: std::collections::BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.word()).collect();
        assert_eq!(words.len(), Reason::ALL.len(), "a word names one reason");
        assert!(words.iter().all(|word| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')));
    }
}
