//! The masks of agents. Making one takes longer than starting a program, and most runs of an agent
//! need the same.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use polity_definition::Redaction;

use crate::masking::{Mask, MaskError};

/// How many are remembered.
const REMEMBERED_MAX: usize = 64;

/// Makes masks, and remembers them.
#[derive(Debug)]
pub(super) struct Masks {
    redaction: Redaction,
    made: Mutex<HashMap<Vec<String>, Mask>>,
}

impl Masks {
    pub(super) fn new(redaction: Redaction) -> Self {
        Self { redaction, made: Mutex::default() }
    }

    /// A mask of these values.
    pub(super) fn of(&self, values: &[String]) -> Result<Mask, MaskError> {
        let made = || self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mask) = made().get(values) {
            return Ok(mask.clone());
        }
        let mask = Mask::new(values.iter().map(String::as_str), &self.redaction)?;
        let mut made = made();
        if made.len() >= REMEMBERED_MAX {
            made.clear();
        }
        made.insert(values.to_vec(), mask.clone());
        Ok(mask)
    }
}
