//! Typed ids. Every id is a UUID v4; the compiler keeps the id of a task apart from that of an
//! execution.
//!
//! Randomness is passed in as bytes: this crate has no random source of its own.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::digest::Digest;

/// A text that is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{found}\" is not a {kind} id: an id is a UUID such as 6fa1c0de-5b1d-4c2e-9d3f-0a1b2c3d4e5f"
)]
pub struct InvalidId {
    kind: &'static str,
    found: String,
}

macro_rules! typed_ids {
    ($($(#[$doc:meta])* $name:ident = $kind:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        $crate::inline_schema!($name, { "type": "string", "format": "uuid" });

        impl $name {
            /// Makes a version 4 id from sixteen random bytes.
            pub fn from_random_bytes(bytes: [u8; 16]) -> Self {
                Self(uuid::Builder::from_random_bytes(bytes).into_uuid())
            }

            /// The id that follows from a name: the same for the same bytes, and else different.
            pub fn derived_from(name: &[u8]) -> Self {
                let digest = Digest::of(name);
                let mut bytes = [0; 16];
                bytes.copy_from_slice(&digest.as_bytes()[..16]);
                Self::from_random_bytes(bytes)
            }

            /// The id that a store wrote as sixteen bytes.
            pub fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }

            /// The sixteen bytes of the id, as stores keep them.
            pub fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Uuid::try_parse(text)
                    .map(Self)
                    .map_err(|_| InvalidId { kind: $kind, found: text.to_owned() })
            }
        }
    )+};
}

typed_ids! {
    /// Identifies a run of a simulation.
    RunId = "run";
    /// One unit of work.
    TaskId = "task";
    /// One attempt to run one agent for a task.
    ExecutionId = "execution";
    /// A continued conversation: a kept-alive agent, or a sub-agent's own history.
    SessionId = "session";
    /// A position in the journal with the State at that position.
    CheckpointId = "checkpoint";
    /// One tool call of a model.
    ToolCallId = "tool call";
    /// One running Polity process that performs work.
    InstanceId = "instance";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_make_version_4_uuids() {
        let id = TaskId::from_random_bytes([0xff; 16]);
        assert_eq!(id.to_string(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(id.to_string().parse::<TaskId>(), Ok(id));
        assert_eq!(TaskId::from_bytes(*id.as_bytes()), id);
    }

    #[test]
    fn invalid_ids_name_the_expected_form() {
        let error = "42".parse::<TaskId>().unwrap_err().to_string();
        assert!(error.starts_with("\"42\" is not a task id: an id is a UUID such as"), "{error}");
    }
}
