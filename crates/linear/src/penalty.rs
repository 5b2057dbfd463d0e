//! The penalty on the weights: R(w) = Σ ρ|w_j| + ½(1 − ρ) w_j².

use std::fmt;
use std::str::FromStr;

/// The term that is minimised in addition to the losses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Penalty {
    /// ½‖w‖².
    #[default]
    L2,
    /// ‖w‖₁, which makes weights 0.
    L1,
    /// Both, with this share ρ of ‖w‖₁, between 0 and 1.
    ElasticNet(f64),
    /// No penalty: [`crate::Unpenalised`].
    None,
}

impl Penalty {
    /// ρ.
    pub fn l1_share(self) -> f64 {
        match self {
            Penalty::L2 | Penalty::None => 0.0,
            Penalty::L1 => 1.0,
            Penalty::ElasticNet(share) => share,
        }
    }

    /// The penalty with this share ρ; `None` outside 0 to 1.
    pub fn with_l1_share(share: f64) -> Option<Penalty> {
        match share {
            0.0 => Some(Penalty::L2),
            1.0 => Some(Penalty::L1),
            _ if share > 0.0 && share < 1.0 => Some(Penalty::ElasticNet(share)),
            _ => None,
        }
    }

    /// R of these weights.
    pub(crate) fn of(self, weights: impl Iterator<Item = f64>) -> f64 {
        if self == Penalty::None {
            return 0.0;
        }
        let share = self.l1_share();
        let each = |w: f64| share * w.abs() + 0.5 * (1.0 - share) * w * w;
        weights.map(each).sum()
    }

    /// R*(v) = sup over w of v·w − R(w), of the magnitudes |v_j|: Σ ½ (|v_j| − ρ)₊² / (1 − ρ), and at ρ = 1 infinity if
    /// one is above 1. Not for [`Penalty::None`].
    pub(crate) fn conjugate(self, magnitudes: impl Iterator<Item = f64>) -> f64 {
        let share = self.l1_share();
        let over = magnitudes.map(|v| (v - share).max(0.0));
        if share == 1.0 {
            let most = over.fold(0.0, f64::max);
            return if most > 0.0 { f64::INFINITY } else { 0.0 };
        }
        0.5 / (1.0 - share) * over.map(|over| over * over).sum::<f64>()
    }
}

impl fmt::Display for Penalty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Penalty::L2 => f.write_str("l2"),
            Penalty::L1 => f.write_str("l1"),
            Penalty::None => f.write_str("none"),
            Penalty::ElasticNet(share) => write!(f, "elastic-net:{share}"),
        }
    }
}

impl FromStr for Penalty {
    type Err = String;

    /// `l2`, `l1`, `none`, `elastic-net` with equal shares, or `elastic-net:SHARE`.
    fn from_str(text: &str) -> Result<Penalty, String> {
        let share = match text {
            "l2" => return Ok(Penalty::L2),
            "l1" => return Ok(Penalty::L1),
            "none" => return Ok(Penalty::None),
            "elastic-net" => Some(0.5),
            _ => text
                .strip_prefix("elastic-net:")
                .and_then(|share| share.parse().ok()),
        };
        share.and_then(Penalty::with_l1_share).ok_or_else(|| {
            format!("`{text}` is not a penalty: use l2, l1, elastic-net:SHARE with a SHARE of l1 between 0 and 1, or none")
        })
    }
}
