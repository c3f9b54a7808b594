//! Charts and tools over HTTP, and drawings.

mod charts;
pub(super) mod drawing;
mod tools;

use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    [charts::routes(), tools::routes()].into_iter().flatten().collect()
}
