//! A size or a time as people write it.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::execution::WireError;

/// A plain number, or text with a unit: `64`, `"64M"`, `"1.5s"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "a number, or text with a unit such as \"64M\" or \"2s\""
)]
pub enum Quantity {
    Number(f64),
    Text(String),
}

impl Quantity {
    pub(super) fn read<T>(&self, field: &str) -> Result<T, WireError>
    where
        T: FromStr,
        T::Err: Display,
    {
        let text = match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        };
        text.parse()
            .map_err(|error: T::Err| WireError::new(field, error.to_string()))
    }
}
