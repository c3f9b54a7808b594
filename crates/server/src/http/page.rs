//! Pages of lists, with opaque cursors.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use polity_model::digest::Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::problem::Problem;

/// The most items of a page.
const ITEMS_MAX: u32 = 1000;

/// The items of a page, unless the request says otherwise.
const ITEMS_DEFAULT: u32 = 50;

/// A page of a list.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PageOf{T}")]
pub(crate) struct Page<T> {
    /// The items.
    pub(crate) items: Vec<T>,
    /// The cursor of the next page; null at the end.
    pub(crate) next_cursor: Option<String>,
}

/// The number of items of a page.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(transparent)]
pub(crate) struct PageLimit(u32);

impl Default for PageLimit {
    fn default() -> Self {
        Self(ITEMS_DEFAULT)
    }
}

impl PageLimit {
    pub(crate) fn get(self) -> Result<u32, Problem> {
        if (1..=ITEMS_MAX).contains(&self.0) {
            return Ok(self.0);
        }
        Err(Problem::unprocessable(format!(
            "limit is {}, and must be from 1 to {ITEMS_MAX}",
            self.0
        ))
        .field("limit"))
    }
}

/// A place in a list: the position of its last item, bound to the query that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cursor {
    query: [u8; 8],
    pub(crate) position: u64,
}

impl Cursor {
    /// The cursor after an item of the list of a query.
    pub(crate) fn new(query: &str, position: u64) -> Self {
        Self { query: tag(query), position }
    }

    /// Reads the cursor of a query.
    pub(crate) fn read(text: &str, query: &str) -> Result<Self, Problem> {
        let refuse = |detail: &str| {
            let status = axum::http::StatusCode::NOT_FOUND;
            Problem::new(status, "unknown_cursor", detail)
                .field("cursor")
                .hint("leave it out to start at the top")
        };
        let bytes = URL_SAFE_NO_PAD.decode(text).ok();
        let parts = bytes.as_deref().and_then(|bytes| bytes.split_at_checked(8));
        let parts = parts.and_then(|(query, position)| {
            Some((<[u8; 8]>::try_from(query).ok()?, <[u8; 8]>::try_from(position).ok()?))
        });
        match parts {
            Some((found, position)) if found == tag(query) => {
                Ok(Self { query: found, position: u64::from_be_bytes(position) })
            }
            Some(_) => Err(refuse("the cursor belongs to another query")),
            None => Err(refuse("the cursor is not one of this server")),
        }
    }

    /// The text of the cursor.
    pub(crate) fn text(self) -> String {
        URL_SAFE_NO_PAD.encode([self.query, self.position.to_be_bytes()].concat())
    }
}

fn tag(query: &str) -> [u8; 8] {
    let mut tag = [0; 8];
    tag.copy_from_slice(&Digest::of(query.as_bytes()).as_bytes()[..8]);
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_is_bound_to_its_query() {
        let text = Cursor::new("tasks running", 7).text();
        assert_eq!(Cursor::read(&text, "tasks running").unwrap().position, 7);
        for (text, query) in [(text.as_str(), "tasks failed"), ("", "x"), ("AAAA", "x"), ("é", "x")]
        {
            assert!(Cursor::read(text, query).is_err(), "{text}");
        }
    }
}
