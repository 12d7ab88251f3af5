//! How much memory a curve needs to come down to a level: the inverse of relaunch time over total
//! memory, linear between the points that were measured.

use clew_report::Crossing;

/// The smallest abscissa from which on the curve stays at or below `level`. `curve` holds points in
/// ascending order of their abscissas, at least one; it need not fall everywhere.
pub fn from_where_below(curve: &[(f64, f64)], level: f64) -> Crossing {
    let last = curve[curve.len() - 1];
    if last.1 > level {
        return Crossing::MoreThan(last.0);
    }
    for pair in curve.windows(2).rev() {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        if y0 > level {
            return Crossing::At(x1 - (level - y1) / (y0 - y1) * (x1 - x0));
        }
    }
    Crossing::AtMost(curve[0].0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FALLING: [(f64, f64); 4] = [(40.0, 100.0), (50.0, 60.0), (60.0, 40.0), (75.0, 10.0)];

    #[test]
    fn between_points_it_is_linear() {
        assert_eq!(from_where_below(&FALLING, 80.0), Crossing::At(45.0));
        assert_eq!(from_where_below(&FALLING, 25.0), Crossing::At(67.5));
        assert_eq!(from_where_below(&FALLING, 60.0), Crossing::At(50.0));
    }

    #[test]
    fn beyond_the_ends_it_only_knows_a_side() {
        assert_eq!(from_where_below(&FALLING, 100.0), Crossing::AtMost(40.0));
        assert_eq!(from_where_below(&FALLING, 5.0), Crossing::MoreThan(75.0));
        assert_eq!(from_where_below(&[(50.0, 3.0)], 3.0), Crossing::AtMost(50.0));
        assert_eq!(from_where_below(&[(50.0, 3.0)], 2.0), Crossing::MoreThan(50.0));
    }

    #[test]
    fn of_several_crossings_the_last_one_counts() {
        let noisy = [(40.0, 30.0), (50.0, 50.0), (60.0, 20.0)];
        assert_eq!(from_where_below(&noisy, 35.0), Crossing::At(55.0));
    }
}
