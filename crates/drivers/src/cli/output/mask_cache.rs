//! A cache of secret masks. Building one takes longer than starting a process, and most runs of an
//! agent need the same.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use polity_definition::RedactionSettings;

use crate::masking::{MaskError, SecretMask};

/// The maximum number of cached masks.
const REMEMBERED_MAX: usize = 64;

/// Builds masks and caches them by their secrets.
#[derive(Debug)]
pub(crate) struct MaskCache {
    redaction: RedactionSettings,
    made: Mutex<HashMap<Vec<String>, SecretMask>>,
}

impl MaskCache {
    pub(crate) fn new(redaction: RedactionSettings) -> Self {
        Self { redaction, made: Mutex::default() }
    }

    /// The mask for these secrets.
    pub(crate) fn of(&self, values: &[String]) -> Result<SecretMask, MaskError> {
        let made = || self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mask) = made().get(values) {
            return Ok(mask.clone());
        }
        let mask = SecretMask::new(values.iter().map(String::as_str), &self.redaction)?;
        let mut made = made();
        if made.len() >= REMEMBERED_MAX {
            made.clear();
        }
        made.insert(values.to_vec(), mask.clone());
        Ok(mask)
    }
}
