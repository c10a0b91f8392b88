//! One line a case, and the closing line.

/// One compared quantity of a case.
pub struct Compared {
    pub what: String,
    pub error: f64,
    pub tolerance: f64,
}

/// Collects the outcome of every case and prints it as it comes.
#[derive(Default)]
pub struct Report {
    n_cases: usize,
    n_failed: usize,
    n_skipped: usize,
}

impl Report {
    /// Prints the case's worst quantity, that is the one nearest to or furthest beyond its tolerance.
    ///
    /// A case in which nothing was compared, or whose error is not a number, has failed.
    pub fn case(&mut self, name: &str, compared: Vec<Compared>) {
        self.n_cases += 1;
        let worst = compared.iter().max_by(|a, b| a.excess().total_cmp(&b.excess()));
        let Some(worst) = worst else {
            self.n_failed += 1;
            return println!("FAIL {name}: nothing was compared");
        };
        let passed = compared.iter().all(Compared::is_within);
        self.n_failed += usize::from(!passed);
        let verdict = if passed { "ok  " } else { "FAIL" };
        println!(
            "{verdict} {name}: {} of {} quantities, largest error {:.3e} (tolerance {:.1e})",
            worst.what,
            compared.len(),
            worst.error,
            worst.tolerance
        );
        for c in compared.iter().filter(|c| !c.is_within()).take(8) {
            println!("     {}: {:.3e} > {:.1e}", c.what, c.error, c.tolerance);
        }
    }

    /// A case that could not be read or run at all.
    pub fn broken(&mut self, name: &str, reason: &str) {
        self.n_cases += 1;
        self.n_failed += 1;
        println!("FAIL {name}: {reason}");
    }

    pub fn skip(&mut self, name: &str, reason: &str) {
        self.n_skipped += 1;
        println!("skip {name}: {reason}");
    }

    /// Prints the closing line; true when cases ran and none failed.
    pub fn finish(self) -> bool {
        println!("oracle: {} cases, {} failed, {} skipped", self.n_cases, self.n_failed, self.n_skipped);
        self.n_failed == 0 && self.n_cases > 0
    }
}

impl Compared {
    pub fn new(what: impl Into<String>, error: f64, tolerance: f64) -> Self {
        Self { what: what.into(), error, tolerance }
    }

    /// Something that must be equal; the error is 0 or 1.
    pub fn equal<T: PartialEq>(what: impl Into<String>, ours: T, theirs: T) -> Self {
        Self::new(what, if ours == theirs { 0.0 } else { 1.0 }, 0.0)
    }

    /// False also for an error that is not a number.
    fn is_within(&self) -> bool {
        self.error <= self.tolerance
    }

    fn excess(&self) -> f64 {
        if self.error.is_nan() {
            return f64::INFINITY;
        }
        if self.tolerance > 0.0 {
            self.error / self.tolerance
        } else if self.error > 0.0 {
            f64::MAX
        } else {
            0.0
        }
    }
}
