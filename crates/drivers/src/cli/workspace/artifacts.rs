//! Collects artifacts: files of the working directory that match the agent's patterns. Text is
//! masked; binary files with a secret are left out.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};

use polity_definition::{GlobMatcher, PathGlob};
use polity_files::{
    FileAccess, RegularFileError, create_file, create_private_folders, open_beneath, remove_tree,
};
use polity_masking::{KNOWN_BYTES_MAX, MaskStream, SecretMask};
use polity_model::digest::Digest;
use polity_model::run::{OmittedFile, RunArtifact, RunArtifacts};
use sha2::{Digest as _, Sha256};

use super::file_tree::check_depth;

/// The chunk size for reading files. A zero byte in the first chunk marks a binary file.
const CHUNK_BYTES: usize = 64 << 10;

/// The maximum number of left-out files that are listed.
const LEFT_OUT_LISTED_MAX: usize = 20;

/// Limits on the artifacts of one run.
#[derive(Debug, Clone, Copy)]
pub struct ArtifactLimits {
    /// The maximum number of files.
    pub files: NonZeroU32,
    /// The maximum total size.
    pub bytes: NonZeroU64,
}

pub(crate) struct ArtifactCollector<'a> {
    pub(crate) patterns: &'a [PathGlob],
    /// The working directory of the run.
    pub(crate) source: &'a Path,
    /// The data folder, which is never searched.
    pub(crate) data: &'a Path,
    /// The target folder, relative to the data folder.
    pub(crate) target: String,
    pub(crate) mask: &'a SecretMask,
    pub(crate) limits: ArtifactLimits,
}

/// The reason that a file is not copied.
enum CopyRefusal {
    /// A problem with this file.
    File(String),
    /// A limit is reached; no more files are copied.
    LimitReached(String),
}

impl From<io::Error> for CopyRefusal {
    fn from(error: io::Error) -> Self {
        Self::File(error.to_string())
    }
}

impl From<RegularFileError> for CopyRefusal {
    fn from(error: RegularFileError) -> Self {
        Self::File(error.to_string())
    }
}

struct CopiedFile {
    bytes: u64,
    sha256: Digest,
    masked: bool,
}

impl ArtifactCollector<'_> {
    /// Copies all matching files, replacing those of an earlier run.
    pub(crate) fn collect(self) -> io::Result<RunArtifacts> {
        let mut artifacts = RunArtifacts { folder: self.target.clone(), ..RunArtifacts::default() };
        remove_tree(&self.data.join(&self.target))?;
        let (source, data) = (self.source.canonicalize()?, self.data.canonicalize()?);
        let mut bytes_left = self.limits.bytes.get();
        let mut names = HashSet::new();
        let mut folders = vec![(PathBuf::new(), GlobMatcher::new(self.patterns))];
        while let Some((folder, globs)) = folders.pop() {
            let entries = fs::read_dir(source.join(&folder)).and_then(Iterator::collect);
            let mut entries: Vec<fs::DirEntry> = match entries {
                Ok(entries) => entries,
                Err(error) => {
                    let shown_path = self.mask.mask_text(&folder.to_string_lossy()).into_owned();
                    leave_out(&mut artifacts, shown_path, error.to_string());
                    continue;
                }
            };
            entries.sort_by_key(fs::DirEntry::file_name);
            // Pushed in reverse, so that folders are visited in order.
            for entry in entries.iter().rev() {
                let name = entry.file_name();
                if entry.file_type()?.is_dir() && entry.path() != data {
                    let within = globs.enter(&name.to_string_lossy());
                    let path = folder.join(&name);
                    if within.is_empty() {
                        continue;
                    }
                    match check_depth(&path) {
                        Ok(()) => folders.push((path, within)),
                        Err(error) => {
                            let shown = self.mask.mask_text(&path.to_string_lossy()).into_owned();
                            leave_out(&mut artifacts, shown, error.to_string());
                        }
                    }
                }
            }
            for entry in entries {
                let name = entry.file_name();
                if entry.file_type()?.is_dir() || !globs.matches_file(&name.to_string_lossy()) {
                    continue;
                }
                let path = folder.join(&name);
                let shown_path = self.masked_name(&path, &mut names);
                let copied = if artifacts.files.len() >= self.limits.files.get() as usize {
                    Err(self.too_many())
                } else {
                    self.copy((&source, &data), &path, &shown_path, &mut bytes_left)
                };
                match copied {
                    Ok(CopiedFile { bytes, sha256, masked }) => {
                        artifacts.files.push(RunArtifact {
                            path: shown_path,
                            bytes,
                            sha256,
                            masked,
                        });
                    }
                    Err(CopyRefusal::File(reason)) => leave_out(&mut artifacts, shown_path, reason),
                    Err(CopyRefusal::LimitReached(reason)) => {
                        leave_out(&mut artifacts, shown_path, reason);
                        return Ok(artifacts);
                    }
                }
            }
        }
        Ok(artifacts)
    }

    /// The path of a copy. Secrets in names are masked, and names that become equal are numbered.
    fn masked_name(&self, path: &Path, names: &mut HashSet<String>) -> String {
        let masked = self.mask.mask_text(&path.to_string_lossy()).into_owned();
        let mut name = masked.clone();
        let mut number = 1_u64;
        while !names.insert(name.clone()) {
            number += 1;
            name = format!("{masked}-{number}");
        }
        name
    }

    fn too_many(&self) -> CopyRefusal {
        CopyRefusal::LimitReached(format!("limits.artifact_files allows {}", self.limits.files))
    }

    fn copy(
        &self,
        (source, data): (&Path, &Path),
        path: &Path,
        shown_path: &str,
        bytes_left: &mut u64,
    ) -> Result<CopiedFile, CopyRefusal> {
        let real = source.join(path).canonicalize()?;
        // Workspaces are themselves in the data folder.
        let is_of_data = real.starts_with(data) && !source.starts_with(data);
        let Some(inside) = real.strip_prefix(source).ok().filter(|_| !is_of_data) else {
            return Err(CopyRefusal::File("it leads out of the folder".to_owned()));
        };
        if path.to_str().is_none() {
            return Err(CopyRefusal::File("its name is not valid UTF-8".to_owned()));
        }
        let file = open_beneath(source, inside)?;
        let about = file.metadata()?;
        let too_large = || {
            let most = self.limits.bytes;
            CopyRefusal::File(format!("limits.artifact_bytes allows {most} in all"))
        };
        if about.len() > *bytes_left {
            return Err(too_large());
        }
        let target = self.data.join(&self.target).join(shown_path);
        target.parent().map_or(Ok(()), create_private_folders)?;
        // Bounds the copy of a file that is growing.
        let copied = copy(file.take(*bytes_left + 1), &target, self.mask);
        match copied {
            Ok(copied) if copied.bytes <= *bytes_left => {
                *bytes_left -= copied.bytes;
                Ok(copied)
            }
            refused => {
                fs::remove_file(&target)?;
                Err(refused.err().unwrap_or_else(too_large))
            }
        }
    }
}

/// The report for a folder that could not be searched.
pub(crate) fn unsearchable(error: &io::Error) -> RunArtifacts {
    let mut artifacts = RunArtifacts::default();
    leave_out(&mut artifacts, ".".to_owned(), error.to_string());
    artifacts
}

fn leave_out(artifacts: &mut RunArtifacts, path: String, reason: String) {
    artifacts.left_out_count += 1;
    if artifacts.left_out.len() < LEFT_OUT_LISTED_MAX {
        artifacts.left_out.push(OmittedFile { path, reason });
    }
}

/// Copies a file and masks its secrets.
fn copy(mut from: impl Read, to: &Path, mask: &SecretMask) -> Result<CopiedFile, CopyRefusal> {
    let mut copy = MaskedCopy {
        file: create_file(to, FileAccess::Private)?,
        bytes: 0,
        before: Sha256::new(),
        after: Sha256::new(),
    };
    let mut chunk = vec![0; CHUNK_BYTES];
    let length = read_full(&mut from, &mut chunk)?;
    let first = &chunk[..length];
    if memchr::memchr(0, first).is_some() {
        copy.copy_binary(first.to_vec(), from, mask)?;
    } else {
        copy.copy_text(&mut chunk, length, from, mask.stream())?;
    }
    let (before, after): ([u8; 32], [u8; 32]) =
        (copy.before.finalize().into(), copy.after.finalize().into());
    Ok(CopiedFile { bytes: copy.bytes, sha256: Digest::from_bytes(after), masked: before != after })
}

struct MaskedCopy {
    file: File,
    bytes: u64,
    before: Sha256,
    after: Sha256,
}

impl MaskedCopy {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.after.update(bytes);
        self.file.write_all(bytes)
    }

    fn copy_text(
        &mut self,
        chunk: &mut [u8],
        mut length: usize,
        mut from: impl Read,
        mut stream: MaskStream,
    ) -> io::Result<()> {
        let mut shown = Vec::new();
        while length > 0 {
            self.before.update(&chunk[..length]);
            stream.push(&chunk[..length], &mut shown);
            self.write(&shown)?;
            shown.clear();
            length = read_full(&mut from, chunk)?;
        }
        stream.finish(&mut shown);
        self.write(&shown)
    }

    /// Copies a binary file unchanged, or refuses it if it contains a secret.
    fn copy_binary(
        &mut self,
        first: Vec<u8>,
        mut from: impl Read,
        mask: &SecretMask,
    ) -> Result<(), CopyRefusal> {
        let mut buffer = first;
        let mut new = 0;
        loop {
            if mask.contains_known_value(&buffer) {
                let reason = "it is a binary file that contains a secret";
                return Err(CopyRefusal::File(reason.to_owned()));
            }
            self.before.update(&buffer[new..]);
            self.write(&buffer[new..])?;
            // A secret may be split between two chunks.
            buffer.drain(..buffer.len().saturating_sub(KNOWN_BYTES_MAX));
            new = buffer.len();
            buffer.resize(new + CHUNK_BYTES, 0);
            let length = read_full(&mut from, &mut buffer[new..])?;
            buffer.truncate(new + length);
            if length == 0 {
                return Ok(());
            }
        }
    }
}

/// Fills the buffer as far as possible.
fn read_full(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
