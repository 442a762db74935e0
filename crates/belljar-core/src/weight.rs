//! How much of the processors a sandbox gets beside others.

use std::num::NonZeroU8;

/// What a sandbox weighs when it and others want the same processors: twice the weight, twice the time. A processor that
/// nobody else wants is anybody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(NonZeroU8);

impl Weight {
    /// That of a sandbox about which nothing was said.
    pub const FULL: Self = Self(NonZeroU8::new(100).unwrap());

    /// The part of each of so many that have one full weight among them.
    pub fn among(count: usize) -> Self {
        let part = usize::from(Self::FULL.get()) / count.max(1);
        let part = u8::try_from(part).ok().and_then(NonZeroU8::new);
        Self(part.unwrap_or(NonZeroU8::MIN))
    }

    /// From 1 to 100.
    pub const fn get(self) -> u8 {
        self.0.get()
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::FULL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_weigh_as_much_as_one_and_none_weighs_nothing() {
        let weights = [0, 1, 2, 3, 12, 100, 101, usize::MAX].map(|count| Weight::among(count).get());
        assert_eq!(weights, [100, 100, 50, 33, 8, 1, 1, 1]);
        assert_eq!(Weight::default(), Weight::among(1));
    }
}
