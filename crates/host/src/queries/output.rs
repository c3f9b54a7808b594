//! The output of programs, as far as it was written. Secrets in it are masked.

use std::fs;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use polity_files::{RegularFileError, open_regular_file};
use polity_model::execution::AgentExecution;
use polity_model::ids::ExecutionId;
use polity_model::name::Name;
use serde::Serialize;

use crate::error::HostError;
use crate::home_folder::HomeFolder;

/// A stream of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// The standard output.
    Stdout,
    /// The standard error.
    Stderr,
}

impl OutputStream {
    /// Both streams.
    pub const ALL: [Self; 2] = [Self::Stdout, Self::Stderr];

    /// The name of the stream and of its file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// The range of bytes to read of each stream.
#[derive(Debug, Clone, Copy)]
pub struct OutputRange {
    /// The offset of the first byte.
    pub after: u64,
    /// The most bytes.
    pub bytes_max: u64,
}

/// A part of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OutputPart {
    /// The execution.
    pub execution_id: ExecutionId,
    /// The agent.
    pub agent: Name,
    /// The number of the run within the execution, from 1.
    pub run: u32,
    /// The stream.
    pub stream: OutputStream,
    /// The offset of the first byte of `text`.
    pub after: u64,
    /// The offset at which to continue.
    pub next_after: u64,
    /// The bytes written so far.
    pub bytes: u64,
    /// The text. Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// True if the run may still write.
    pub open: bool,
}

/// Reads the output of an execution. Blocks on the file system.
pub fn read_output(
    folder: &HomeFolder,
    execution: &AgentExecution,
    streams: &[OutputStream],
    range: OutputRange,
) -> Result<Vec<OutputPart>, HostError> {
    let path = folder.output(execution.id);
    let is_open = !execution.is_over();
    let runs = numbered_folders(&path).map_err(|error| HostError::io("read", &path, error))?;
    let newest = runs.last().copied();
    let mut parts = Vec::new();
    for run in runs {
        for stream in streams {
            let file = path.join(run.to_string()).join(stream.as_str());
            let read = read_range(&file, range);
            let Some((bytes, text, end)) =
                read.map_err(|error| HostError::io("read", &file, error))?
            else {
                continue;
            };
            parts.push(OutputPart {
                execution_id: execution.id,
                agent: execution.agent.clone(),
                run: run.saturating_add(1),
                stream: *stream,
                after: range.after.min(bytes),
                next_after: end,
                bytes,
                text,
                open: is_open && Some(run) == newest,
            });
        }
    }
    Ok(parts)
}

/// The runs of an execution that have output, in order, counted from 0 as their folders are.
fn numbered_folders(path: &Path) -> io::Result<Vec<u32>> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut runs = Vec::new();
    for entry in entries {
        runs.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    runs.sort_unstable();
    Ok(runs)
}

/// The size of a file, the text of a range, and the offset after it. None without a file.
fn read_range(path: &Path, range: OutputRange) -> io::Result<Option<(u64, String, u64)>> {
    let mut file = match open_regular_file(path) {
        Ok(file) => file,
        Err(RegularFileError::Io(error)) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let size = file.metadata()?.len();
    let start = range.after.min(size);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(range.bytes_max).read_to_end(&mut bytes)?;
    let end = start + bytes.len() as u64;
    let length = if end < size { complete_characters(&bytes) } else { bytes.len() };
    let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
    Ok(Some((size, text, start + length as u64)))
}

/// The length of the bytes without a character that is cut at their end.
fn complete_characters(bytes: &[u8]) -> usize {
    let cut = bytes.utf8_chunks().last().map_or(0, |chunk| chunk.invalid().len());
    let is_cut = std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none());
    let length = bytes.len() - if is_cut { cut } else { 0 };
    // A range of less than one character is read all the same, so that a reader goes on.
    if length == 0 { bytes.len() } else { length }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_to_the_whole_text_whatever_their_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout");
        let text = "héllo, wörld — 日本語\n";
        fs::write(&path, text).unwrap();
        for bytes_max in 4..12 {
            let (mut joined, mut after) = (String::new(), 0);
            loop {
                let read = read_range(&path, OutputRange { after, bytes_max }).unwrap().unwrap();
                let (size, part, end) = read;
                joined += &part;
                assert!(end > after || end == size, "{bytes_max}");
                after = end;
                if end == size {
                    break;
                }
            }
            assert_eq!(joined, text, "{bytes_max}");
        }
        let beyond = read_range(&path, OutputRange { after: 1 << 40, bytes_max: 9 }).unwrap();
        assert_eq!(beyond, Some((text.len() as u64, String::new(), text.len() as u64)));
        assert_eq!(
            read_range(&folder.path().join("none"), OutputRange { after: 0, bytes_max: 1 })
                .unwrap(),
            None
        );
    }
}
