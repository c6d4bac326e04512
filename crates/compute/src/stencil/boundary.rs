//! Elements beyond the ends of an axis, with SciPy's names.

/// The replacement for an element outside the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boundary {
    /// A constant.
    Constant,
    /// The last element.
    Nearest,
    /// Mirrored at the edge of the last element: `c b a | a b c`.
    Reflect,
    /// Mirrored at the last element: `d c b | a b c d`.
    Mirror,
    /// The element from the other end.
    Wrap,
    /// None: elements with missing neighbours do not change.
    Untouched,
}

impl Boundary {
    /// The boundary with this name.
    pub fn of(name: &str) -> Option<Boundary> {
        Some(match name {
            "constant" => Boundary::Constant,
            "nearest" => Boundary::Nearest,
            "reflect" => Boundary::Reflect,
            "mirror" => Boundary::Mirror,
            "wrap" => Boundary::Wrap,
            "untouched" => Boundary::Untouched,
            _ => return None,
        })
    }

    /// The element of an axis of length `n > 0` that replaces `index`.
    ///
    /// `index` may lie beyond the ends of the axis. None if the replacement is a constant, or none.
    pub fn source(self, index: i64, n: i64) -> Option<i64> {
        if (0..n).contains(&index) {
            return Some(index);
        }
        match self {
            Boundary::Constant | Boundary::Untouched => None,
            Boundary::Nearest => Some(index.clamp(0, n - 1)),
            Boundary::Wrap => Some(index.rem_euclid(n)),
            Boundary::Reflect => {
                let at = index.rem_euclid(2 * n);
                Some(at.min(2 * n - 1 - at))
            }
            Boundary::Mirror if n == 1 => Some(0),
            Boundary::Mirror => {
                let at = index.rem_euclid(2 * n - 2);
                Some(at.min(2 * n - 2 - at))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Boundary;

    #[test]
    fn ends_are_those_of_scipy() {
        let line = |boundary: Boundary, n| -> Vec<Option<i64>> {
            (-5..n + 5).map(|index| boundary.source(index, n)).collect()
        };
        let some = |all: &[i64]| all.iter().copied().map(Some).collect::<Vec<_>>();
        assert_eq!(some(&[1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0, 0, 1]), line(Boundary::Reflect, 3));
        assert_eq!(some(&[1, 0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2, 1]), line(Boundary::Mirror, 3));
        assert_eq!(some(&[0; 11]), line(Boundary::Mirror, 1));
        assert_eq!(some(&[1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1]), line(Boundary::Wrap, 3));
        assert_eq!(some(&[0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]), line(Boundary::Nearest, 2));
        assert_eq!(vec![None, Some(0), None], line(Boundary::Constant, 1)[4..7].to_vec());
    }
}
