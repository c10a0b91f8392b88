//! The text of the last panic, for a report that says more than that there was one.

use std::panic::{self, PanicHookInfo};
use std::sync::{Mutex, PoisonError};

static LAST: Mutex<Option<String>> = Mutex::new(None);

/// From now on keeps the text of each panic, and prints it as before.
pub fn remember() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(text_of(info));
        print(info);
    }));
}

/// The text of the last panic of any thread, with its place.
pub fn last() -> Option<String> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Whether a device's memory was at fault, by the words that burn's back-ends and their drivers use.
pub fn is_out_of_memory(text: &str) -> bool {
    let text = text.to_lowercase();
    ["out of memory", "outofmemory", "out_of_memory", "memory allocation"].iter().any(|words| text.contains(words))
}

fn text_of(info: &PanicHookInfo) -> String {
    let text = info.payload_as_str().unwrap_or("it gave no text");
    info.location().map_or_else(|| text.to_owned(), |place| format!("{text} ({place})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_did_not_suffice_is_told_from_other_faults() {
        assert!(is_out_of_memory("DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")"));
        assert!(is_out_of_memory("Failed to allocate: OutOfMemory"));
        assert!(!is_out_of_memory("index out of bounds"));
    }
}
