//! Time in training, pauses left out.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Seconds of training over all sittings of a run.
#[derive(Debug, Clone, Copy)]
pub struct ActiveClock {
    before_s: f64,
    /// Absent while it stands.
    since: Option<Instant>,
}

impl ActiveClock {
    /// A clock that goes, with `before_s` seconds of earlier sittings.
    pub fn going(before_s: f64) -> Self {
        Self { before_s, since: Some(Instant::now()) }
    }

    pub fn elapsed_s(&self) -> f64 {
        self.before_s + self.since.map_or(0.0, |since| since.elapsed().as_secs_f64())
    }

    pub fn halt(&mut self) {
        *self = Self { before_s: self.elapsed_s(), since: None };
    }

    pub fn go_on(&mut self) {
        *self = Self::going(self.elapsed_s());
    }
}

/// Milliseconds since 1970, UTC.
pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_stands_does_not_go_on() {
        let mut clock = ActiveClock::going(100.0);
        clock.halt();
        let stopped = clock.elapsed_s();
        assert!(stopped >= 100.0);
        assert_eq!(clock.elapsed_s(), stopped);
        clock.go_on();
        assert!(clock.elapsed_s() >= stopped);
    }
}
