//! Quantities with their unit in the type: [`Bytes`] and [`Seconds`].

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(u64);

impl Bytes {
    pub const ZERO: Self = Self(0);
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    pub const fn new(count: u64) -> Self {
        Self(count)
    }

    /// `mib` times 1024 squared; saturates instead of wrapping.
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib.saturating_mul(Self::MIB))
    }

    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whole mebibytes, rounded up, as policies count them.
    pub const fn mib_ceil(self) -> u64 {
        self.0.div_ceil(Self::MIB)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const STEPS: [(u64, &str); 4] = [
            (Bytes::MIB << 20, "TiB"),
            (Bytes::MIB << 10, "GiB"),
            (Bytes::MIB, "MiB"),
            (Bytes::KIB, "KiB"),
        ];
        for (size, name) in STEPS {
            if self.0 >= size {
                let whole = self.0 / size;
                let tenth = (self.0 % size) * 10 / size;
                return if tenth == 0 {
                    write!(f, "{whole} {name}")
                } else {
                    write!(f, "{whole}.{tenth} {name}")
                };
            }
        }
        write!(f, "{} B", self.0)
    }
}

/// Why a size or a duration could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("`{0}` is not a size; write a number with an optional unit, such as 256M, 1.5G or 4096")]
    Size(String),
    #[error("`{0}` is larger than any size this machine can hold")]
    SizeTooLarge(String),
    #[error("`{0}` is not a duration; write seconds, or a number with ms, s, m or h, such as 1.5s or 2m")]
    Duration(String),
    #[error("a duration must be a finite number of seconds that is not negative, not {0}")]
    SecondsOutOfRange(String),
}

impl FromStr for Bytes {
    type Err = UnitError;

    /// Reads `4096`, `256M`, `256MB`, `256MiB`, `1.5g`. All units are powers of 1024.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || UnitError::Size(text.to_owned());
        let (number, unit) = split_unit(text.trim()).ok_or_else(bad)?;
        let shift = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(bad()),
        };
        let too_large = || UnitError::SizeTooLarge(text.to_owned());
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(1 << shift).map(Self).ok_or_else(too_large);
        }
        let value: f64 = number.parse().map_err(|_| bad())?;
        let scaled = value * (1u64 << shift) as f64;
        if !scaled.is_finite() || scaled >= u64::MAX as f64 {
            return Err(too_large());
        }
        Ok(Self(scaled as u64))
    }
}

/// A span of time: finite and never negative.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Seconds(f64);

impl Seconds {
    pub const ZERO: Self = Self(0.0);
    /// About thirty thousand years: every value below it converts to a `Duration`.
    const MAX: f64 = 1e12;

    pub fn new(seconds: f64) -> Result<Self, UnitError> {
        if seconds.is_finite() && (0.0..=Self::MAX).contains(&seconds) {
            Ok(Self(seconds))
        } else {
            Err(UnitError::SecondsOutOfRange(seconds.to_string()))
        }
    }

    pub const fn whole(seconds: u32) -> Self {
        Self(seconds as f64)
    }

    pub const fn get(self) -> f64 {
        self.0
    }

    pub fn min(self, other: Self) -> Self {
        if other.0 < self.0 { other } else { self }
    }

    pub fn duration(self) -> Duration {
        Duration::from_secs_f64(self.0)
    }
}

impl From<Duration> for Seconds {
    fn from(duration: Duration) -> Self {
        Self(duration.as_secs_f64().min(Self::MAX))
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(f64::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", (self.0 * 1000.0).round() / 1000.0)
    }
}

impl FromStr for Seconds {
    type Err = UnitError;

    /// Reads `30`, `1.5`, `500ms`, `2m`, `1h`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || UnitError::Duration(text.to_owned());
        let (number, unit) = split_unit(text.trim()).ok_or_else(bad)?;
        let factor = match unit.to_ascii_lowercase().as_str() {
            "" | "s" | "sec" => 1.0,
            "ms" => 0.001,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            _ => return Err(bad()),
        };
        let value: f64 = number.parse().map_err(|_| bad())?;
        Self::new(value * factor)
    }
}

/// Splits `12.5MiB` into `12.5` and `MiB`. `None` unless it starts with a plain decimal number.
fn split_unit(text: &str) -> Option<(&str, &str)> {
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (!number.is_empty() && number != ".").then(|| (number, unit.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_in_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("1k", 1024),
            ("256M", 256 << 20),
            ("256 MiB", 256 << 20),
            ("1.5G", 3 << 29),
            ("2tb", 2 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Bytes::new(bytes)), "{text}");
        }
    }

    #[test]
    fn bad_sizes_name_the_text() {
        for text in ["", "-1", "M", ".", "1.2.3", "12x", "1e9", "NaN", "inf", "٣"] {
            let error = text.parse::<Bytes>().unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
        assert!(matches!(
            "99999999999T".parse::<Bytes>(),
            Err(UnitError::SizeTooLarge(_))
        ));
    }

    #[test]
    fn durations_are_read_with_their_unit() {
        for (text, seconds) in [
            ("30", 30.0),
            ("500ms", 0.5),
            ("1.5s", 1.5),
            ("2m", 120.0),
            ("1h", 3600.0),
        ] {
            assert_eq!(text.parse::<Seconds>().unwrap().get(), seconds, "{text}");
        }
        for text in ["", "-1", "1d", "NaN", "1e5", "s"] {
            assert!(text.parse::<Seconds>().is_err(), "{text}");
        }
        assert!(Seconds::new(f64::NAN).is_err());
        assert!(Seconds::new(-0.5).is_err());
        assert!(Seconds::new(f64::INFINITY).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_panic(text in ".{0,40}") {
            let _ = text.parse::<Bytes>();
            if let Ok(seconds) = text.parse::<Seconds>() {
                let _ = seconds.duration();
            }
        }

        #[test]
        fn whole_sizes_round_trip(count in 0u64..=u64::MAX) {
            prop_assert_eq!(count.to_string().parse(), Ok(Bytes::new(count)));
        }
    }
}
