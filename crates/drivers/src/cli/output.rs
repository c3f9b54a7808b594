//! Reads the output of a process: masked, written to files, parsed and shown live.
//!
//! `output_reader` drives the others. Every chunk passes through the mask, then to `output_file`,
//! to a parser (`parser` or `json_rpc`) and to `live_output`.

pub(crate) mod json_rpc;
pub(crate) mod live_output;
pub(crate) mod mask_cache;
pub(crate) mod output_file;
pub(crate) mod output_reader;
pub(crate) mod parser;
