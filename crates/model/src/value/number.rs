//! Numbers with a range, as types: sampling temperatures and amounts of money.

use serde::{Deserialize, Serialize};

use crate::value::InvalidValue;

macro_rules! number_type {
    ($(#[$doc:meta])* $name:ident, $allowed:expr, $words:literal, $schema:tt) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(try_from = "f64", into = "f64")]
        pub struct $name(f64);

        impl $name {
            /// The number.
            pub fn get(self) -> f64 {
                self.0
            }
        }

        impl TryFrom<f64> for $name {
            type Error = InvalidValue;

            fn try_from(number: f64) -> Result<Self, InvalidValue> {
                let allowed: fn(f64) -> bool = $allowed;
                if allowed(number) {
                    Ok(Self(number))
                } else {
                    Err(InvalidValue::new(format!(concat!("must be ", $words, ", found {}"), number)))
                }
            }
        }

        impl From<$name> for f64 {
            fn from(number: $name) -> Self {
                number.0
            }
        }

        $crate::inline_schema!($name, $schema);
    };
}

number_type!(
    /// The sampling temperature of a model, from 0 to 2.
    Temperature,
    |number| (0.0..=2.0).contains(&number),
    "from 0 to 2",
    { "type": "number", "minimum": 0, "maximum": 2 }
);
number_type!(
    /// A price in US dollars, 0 or above.
    Usd,
    |number| number >= 0.0 && number.is_finite(),
    "0 or above",
    { "type": "number", "minimum": 0 }
);
number_type!(
    /// A limit in US dollars, above 0.
    UsdLimit,
    |number| number > 0.0 && number.is_finite(),
    "above 0",
    { "type": "number", "exclusiveMinimum": 0 }
);

impl Usd {
    /// Nothing.
    pub const ZERO: Self = Self(0.0);
}

impl Temperature {
    /// The temperature of an agent that does not say.
    pub const DEFAULT: Self = Self(0.7);
}
