//! Cassettes: recorded answers of models, tools, CLI agents, remote agents and people, for replay
//! without them.
//!
//! A [`CassetteRecorder`] wraps the real drivers and records their answers. A [`CassettePlayer`]
//! replaces them. Each answer is keyed by its call site: session, turn, and for a tool the index of
//! the call. Parallel sessions may therefore ask in any order. A request must match the recorded
//! one; otherwise the task fails with a diff.
//!
//! `document` is the file format, `conversation` a request without ids, times and secrets,
//! `session` stores each message once, and `diff` compares texts. The host reads and writes the
//! files.

mod conversation;
mod diff;
mod document;
mod multiline;
mod player;
mod program_runs;
mod recorder;
mod remote_messages;
mod reviews;
mod session;

#[cfg(test)]
mod tests;

pub use document::{Cassette, CassetteError, CassetteSize};
pub use player::CassettePlayer;
pub use program_runs::{PlaybackProgramDriver, RecordingProgramDriver};
pub use recorder::CassetteRecorder;
pub use remote_messages::{PlaybackRemoteDriver, RecordingRemoteDriver};
pub use reviews::{CassetteVerdict, ReviewQuestion};
