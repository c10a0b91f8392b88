//! Plane projective maps as 3 x 3 matrices.

/// Row by row; maps the column `(x, y, 1)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Matrix3(pub [[f64; 3]; 3]);

impl Matrix3 {
    pub const IDENTITY: Self = Self([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);

    pub fn translation(x: f64, y: f64) -> Self {
        Self([[1.0, 0.0, x], [0.0, 1.0, y], [0.0, 0.0, 1.0]])
    }

    /// This map followed by `next`.
    pub fn then(&self, next: &Self) -> Self {
        let entry = |row: usize, column: usize| (0..3).map(|k| next.0[row][k] * self.0[k][column]).sum();
        Self(std::array::from_fn(|row| std::array::from_fn(|column| entry(row, column))))
    }

    /// `None` for a map that cannot be undone.
    pub fn inverse(&self) -> Option<Self> {
        let cofactor = |row: usize, column: usize| {
            let (r1, r2, c1, c2) = ((row + 1) % 3, (row + 2) % 3, (column + 1) % 3, (column + 2) % 3);
            self.0[r1][c1] * self.0[r2][c2] - self.0[r1][c2] * self.0[r2][c1]
        };
        let determinant: f64 = (0..3).map(|column| self.0[0][column] * cofactor(0, column)).sum();
        if determinant == 0.0 || !determinant.is_finite() {
            return None;
        }
        Some(Self(std::array::from_fn(|row| std::array::from_fn(|column| cofactor(column, row) / determinant))))
    }

    /// Where a point goes; `None` when it goes to infinity or behind the plane of view.
    pub fn point(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let [image_x, image_y, depth] = self.0.map(|row| row[0] * x + row[1] * y + row[2]);
        (depth > DEPTH_EPSILON).then(|| (image_x / depth, image_y / depth))
    }

    /// Whether straight, evenly spaced points stay evenly spaced.
    pub fn is_affine(&self) -> bool {
        self.0[2] == [0.0, 0.0, 1.0]
    }
}

/// Protects the division by depth.
const DEPTH_EPSILON: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_and_its_inverse_cancel() {
        let map = Matrix3([[0.5, 0.1, 7.0], [-0.2, 1.5, -3.0], [1e-4, 2e-4, 1.0]]);
        let (x, y) = map.point(10.0, 20.0).and_then(|(x, y)| map.inverse().unwrap().point(x, y)).unwrap();
        assert!((x - 10.0).abs() < 1e-9 && (y - 20.0).abs() < 1e-9, "back at ({x}, {y})");
    }

    #[test]
    fn maps_are_chained_in_reading_order() {
        let doubled = Matrix3([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.0]]);
        let map = Matrix3::translation(1.0, 0.0).then(&doubled);
        assert_eq!(map.point(3.0, 5.0), Some((8.0, 10.0)), "first moved, then doubled");
    }

    #[test]
    fn a_collapsing_map_has_no_inverse() {
        assert_eq!(Matrix3([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 1.0]]).inverse(), None, "rank two");
    }
}
