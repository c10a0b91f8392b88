//! Sampled curves: linear interpolation, smoothing and the area below.

/// `n_points` numbers from 0 to 1, both included, equally far apart.
pub(super) fn unit_grid(n_points: usize) -> Vec<f64> {
    let step = 1.0 / (n_points - 1) as f64;
    (0..n_points).map(|i| if i + 1 == n_points { 1.0 } else { i as f64 * step }).collect()
}

/// Value at `x` of the line through the points (`xs`, `ys`), `xs` ascending and not empty.
///
/// Where several points share an x, the last of them counts. Before the first point: `before`; behind the last: its y.
pub(super) fn interpolated(x: f64, xs: &[f64], ys: &[f64], before: f64) -> f64 {
    let n_at_or_below = xs.partition_point(|&point| point <= x);
    if n_at_or_below == 0 {
        return before;
    }
    let left = n_at_or_below - 1;
    if n_at_or_below == xs.len() || xs[left] == x {
        return ys[left];
    }
    let slope = (ys[left + 1] - ys[left]) / (xs[left + 1] - xs[left]);
    ys[left] + slope * (x - xs[left])
}

/// Moving average over a window of `window` points (odd); the ends are continued by their own values.
pub(super) fn smoothed(values: &[f64], window: usize) -> Vec<f64> {
    let half = window / 2;
    let last = values.len().saturating_sub(1);
    let at = |position: usize| values[position.saturating_sub(half).min(last)];
    (0..values.len()).map(|center| (center..center + window).map(at).sum::<f64>() / window as f64).collect()
}

/// Area below the polygon through the points, by the trapezoidal rule.
pub(super) fn area_below(xs: &[f64], ys: &[f64]) -> f64 {
    xs.windows(2).zip(ys.windows(2)).map(|(x, y)| (x[1] - x[0]) * (y[0] + y[1]) / 2.0).sum()
}

/// Position of the largest value, the first of equals; 0 for an empty list.
pub(super) fn position_of_max(values: &[f64]) -> usize {
    (1..values.len()).fold(0, |best, i| if values[i] > values[best] { i } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpolation_takes_the_last_of_points_with_one_x() {
        let (xs, ys) = ([0.0, 0.5, 0.5, 1.0], [1.0, 1.0, 0.0, 0.0]);
        assert_eq!(interpolated(0.25, &xs, &ys, 9.0), 1.0);
        assert_eq!(interpolated(0.5, &xs, &ys, 9.0), 0.0, "the step belongs to its lower end");
        assert_eq!(interpolated(-0.1, &xs, &ys, 9.0), 9.0);
        assert_eq!(interpolated(2.0, &xs, &ys, 9.0), 0.0);
    }

    #[test]
    fn interpolation_is_linear_between_points() {
        assert_eq!(interpolated(0.25, &[0.0, 1.0], &[2.0, 4.0], 0.0), 2.5);
    }

    #[test]
    fn smoothing_continues_the_ends() {
        let thirds: Vec<f64> = smoothed(&[3.0, 0.0, 6.0], 3);
        assert_eq!(thirds, [2.0, 3.0, 4.0], "(3+3+0)/3, (3+0+6)/3, (0+6+6)/3");
    }

    #[test]
    fn area_below_a_triangle_is_half_its_square() {
        assert_eq!(area_below(&[0.0, 1.0], &[0.0, 1.0]), 0.5);
    }

    #[test]
    fn grid_ends_exactly_at_one() {
        let grid = unit_grid(1000);
        assert_eq!((grid.len(), grid[0], grid[999]), (1000, 0.0, 1.0));
    }
}
