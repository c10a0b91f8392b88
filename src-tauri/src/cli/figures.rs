//! Sizes and times as people read them.

/// A number of bytes, in the unit that leaves one to three digits before the point: `12.3 MB`.
pub fn size_text(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1000.0;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    // From 999.95 on it would be shown as 1000.0.
    while size >= 999.95 && units.len() > 0 {
        size /= 1000.0;
        unit = units.next();
    }
    format!("{size:.1} {}", unit.unwrap_or(&"TB"))
}

/// Rows as columns that begin below each other, the widest cell deciding.
pub fn columns(rows: &[Vec<String>]) -> String {
    let n_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let wide = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..n_columns).map(|column| wide(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_up_to_three_digits_before_the_point() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (999_949, "999.9 kB"),
            (999_951, "1.0 MB"),
            (12_345_678, "12.3 MB"),
            (5_800_000_000, "5.8 GB"),
            (7_000_000_000_000_000, "7000.0 TB"),
        ] {
            assert_eq!(size_text(bytes), text);
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "鱼鱼鱼", "x"], ["bbbb", "c", ""]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(columns(&rows), "a     鱼鱼鱼  x\nbbbb  c");
    }
}
