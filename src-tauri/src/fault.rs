//! Faults on purpose, for tests of a whole process: dying, hanging or being slow at a named point.
//!
//! The variable `FERMATA_FAULT` holds `POINT[:N]=ACTION`, several separated by commas. Actions are `abort`, `hang`, and `sleep:MS`;
//! with N the point counts only when it is reached for that epoch or batch. Builds without debug assertions have none of
//! this.

/// Says that a point is reached, for epoch or batch `n`.
#[cfg(debug_assertions)]
pub fn reached(point: &str, n: impl Into<u64>) {
    let Ok(faults) = std::env::var("FERMATA_FAULT") else { return };
    let n = n.into();
    for action in actions_at(&faults, point, n) {
        act(action);
    }
}

#[cfg(not(debug_assertions))]
pub fn reached(_point: &str, _n: impl Into<u64>) {}

#[cfg(debug_assertions)]
fn actions_at<'a>(faults: &'a str, point: &str, n: u64) -> impl Iterator<Item = &'a str> {
    faults.split(',').filter_map(move |fault| {
        let (at, action) = fault.split_once('=')?;
        let (name, only) = at.split_once(':').map_or((at, None), |(name, only)| (name, only.parse().ok()));
        (name == point && only.is_none_or(|only: u64| only == n)).then_some(action)
    })
}

#[cfg(debug_assertions)]
fn act(action: &str) {
    use std::time::Duration;

    match action.split_once(':').unwrap_or((action, "")) {
        ("abort", _) => std::process::abort(),
        ("hang", _) => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        ("sleep", ms) => std::thread::sleep(Duration::from_millis(ms.parse().unwrap_or(0))),
        _ => {}
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn a_fault_has_a_point_and_perhaps_a_number() {
        let faults = "row_written:3=abort,checkpoint_file=sleep:20";
        let at = |point, n| actions_at(faults, point, n).collect::<Vec<_>>();
        assert_eq!(at("row_written", 3), ["abort"]);
        assert!(at("row_written", 2).is_empty());
        assert_eq!(at("checkpoint_file", 9), ["sleep:20"]);
    }
}
