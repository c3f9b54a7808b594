//! Cassettes: what models, tools, programs and agents on other servers answered in one run, to be answered again without them.
//!
//! A [`Recorder`] stands before the real ones and writes down what passes. A [`Player`] stands in their
//! place, and answers from what was written. Every answer is found by its place:
//! the session, the turn, and for a tool the call of that turn. So it does not matter in what order
//! the sessions of a run ask. What is asked at a place must be what was asked there when the
//! cassette was recorded; if not, the task fails and shows the difference.
//!
//! `document` is the form of the file, `conversation` is what a model was sent without what differs
//! from run to run, `session` tells what an earlier turn has said already, and `difference` compares
//! two texts. Files are read and written by others: this is text in, text out.

mod conversation;
mod difference;
mod document;
mod lines;
mod player;
mod programs;
mod recorder;
mod remotes;
mod session;

#[cfg(test)]
mod tests;

pub use document::{Cassette, CassetteError, Size};
pub use player::Player;
pub use programs::{PlayedPrograms, RecordedPrograms};
pub use recorder::Recorder;
pub use remotes::{PlayedRemotes, RecordedRemotes};
