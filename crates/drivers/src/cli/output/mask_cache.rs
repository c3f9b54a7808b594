//! A cache of secret masks, because building one takes longer than starting a process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use polity_masking::{MaskError, RedactionSettings, SecretMask};

const MASKS_MAX: usize = 64;

/// Builds masks and caches them by their secrets.
#[derive(Debug)]
pub(crate) struct MaskCache {
    redaction: RedactionSettings,
    masks: Mutex<HashMap<Vec<String>, SecretMask>>,
}

impl MaskCache {
    pub(crate) fn new(redaction: RedactionSettings) -> Self {
        Self { redaction, masks: Mutex::default() }
    }

    pub(crate) fn get_or_build(&self, values: &[String]) -> Result<SecretMask, MaskError> {
        let masks = || self.masks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mask) = masks().get(values) {
            return Ok(mask.clone());
        }
        let mask = SecretMask::new(values.iter().map(String::as_str), &self.redaction)?;
        let mut masks = masks();
        if masks.len() >= MASKS_MAX {
            masks.clear();
        }
        masks.insert(values.to_vec(), mask.clone());
        Ok(mask)
    }
}
