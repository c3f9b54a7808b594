//! Requests from outside, and their answers.
//!
//! Any process appends a request to `requests.jsonl`. The process that runs the simulation reads
//! new lines at the end of each turn and appends its answers. An answer names its turn and is
//! durable before the next checkpoint. So a resumed run handles the request in the same turn and
//! gives the same result. A fork copies the requests answered after its turn, each with its turn.
//!
//! Every request gets one answer: its first. The run holds the lock of the file from its look at
//! new requests until it has answered them. A process that gives up its request also looks and
//! answers under the lock. So a request is either handled or withdrawn, never both.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::SimError;
use crate::folder::durable_files as files;
use crate::lifecycle::{LifecycleAction, RequestVerdict};

/// The maximum size of the new requests that are read at once.
const REQUEST_BYTES_MAX: u64 = 1 << 30;

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RequestLogLine {
    Request {
        request_id: String,
        /// The turn at whose end it is handled; by default the next one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<u64>,
        #[serde(flatten)]
        action: LifecycleAction,
    },
    Answer(RequestAnswer),
    /// An invalid request. It is never written.
    #[serde(skip)]
    Unreadable {
        request_id: String,
        reason: String,
    },
    /// An unknown line, by its number. It is never written.
    #[serde(skip)]
    Foreign {
        number: usize,
    },
}

/// The answer to a request from outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestAnswer {
    /// The id of the request.
    pub request_id: String,
    /// The turn at whose end it was handled.
    pub turn: u64,
    /// The verdict.
    #[serde(flatten)]
    pub verdict: RequestVerdict,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OutsideRequest {
    pub(crate) id: String,
    /// The action, or the reason why it cannot be read.
    pub(crate) action: Result<LifecycleAction, String>,
    /// The turn that it is meant for, if any.
    turn: Option<u64>,
    /// The turn in which it was answered before the run was resumed.
    pub(crate) answered_in: Option<u64>,
}

/// The request file, as far as it was read.
#[derive(Debug)]
pub(crate) struct RequestLog {
    tail: LogTail,
    /// Requests to be handled in later turns.
    planned: BTreeMap<u64, Vec<OutsideRequest>>,
    /// Requests without an answer.
    new: Vec<OutsideRequest>,
    /// The ids of all requests. A repeated request counts once.
    known: HashSet<String>,
    /// The lock of the file, while requests wait for their answers.
    claim: Option<LockedLog>,
}

impl RequestLog {
    /// Opens the file of a run that continues after `turn`.
    pub(crate) fn open(path: &Path, turn: u64) -> Result<Self, SimError> {
        Self::read(path, turn, check_complete)
    }

    /// Reads the file of a run that may be in progress, as of the end of `turn`.
    pub(crate) fn peek(path: &Path, turn: u64) -> Result<Self, SimError> {
        Self::read(path, turn, |_, _| Ok(()))
    }

    fn read(
        path: &Path,
        turn: u64,
        check: impl Fn(&Path, &[RequestLogLine]) -> Result<(), SimError>,
    ) -> Result<Self, SimError> {
        let mut log = Self {
            tail: LogTail::new(path, 0),
            planned: BTreeMap::new(),
            new: Vec::new(),
            known: HashSet::new(),
            claim: None,
        };
        let lines = log.tail.read_new_lines()?;
        check(path, &lines)?;
        log.sort_lines(turn, lines);
        Ok(log)
    }

    /// Sorts lines into planned and new requests, after `turn`.
    fn sort_lines(&mut self, turn: u64, lines: Vec<RequestLogLine>) {
        let (requests, answers) = with_answers(lines);
        // A request that was read before may have been withdrawn since.
        self.new.retain(|request| !answers.contains_key(&request.id));
        for request in requests {
            if !self.known.insert(request.id.clone()) {
                continue;
            }
            match (request.answered_in, request.turn) {
                (Some(planned), _) | (None, Some(planned)) if planned > turn => {
                    self.planned.entry(planned).or_default().push(request);
                }
                (Some(_), _) => {}
                (None, _) => self.new.push(request),
            }
        }
    }

    /// Reads new lines, before the requests of this turn are handled.
    fn read_new(&mut self, turn: u64) -> Result<(), SimError> {
        let lines = self.tail.read_new_lines()?;
        self.sort_lines(turn.saturating_sub(1), lines);
        Ok(())
    }

    /// Takes the requests to handle in this turn, in the order of submission. If any of them has no
    /// answer yet, the file is locked until [`record_answers`](Self::record_answers).
    pub(crate) fn claim(&mut self, turn: u64) -> Result<Vec<OutsideRequest>, SimError> {
        self.read_new(turn)?;
        if !self.new.is_empty() {
            self.claim = Some(LockedLog::lock(&self.tail.path)?);
            self.read_new(turn)?;
        }
        Ok(self.take(turn))
    }

    fn take(&mut self, turn: u64) -> Vec<OutsideRequest> {
        let mut requests = self.planned.remove(&turn).unwrap_or_default();
        requests.append(&mut self.new);
        requests
    }

    /// Returns the requests that wait for this turn, without a claim on them.
    pub(crate) fn waiting(mut self, turn: u64) -> Vec<LifecycleAction> {
        self.take(turn).into_iter().filter_map(|request| request.action.ok()).collect()
    }

    /// Returns the requests planned for later turns.
    pub(crate) fn answered(self) -> BTreeMap<u64, Vec<LifecycleAction>> {
        let actions = |requests: Vec<OutsideRequest>| {
            requests.into_iter().filter_map(|request| request.action.ok()).collect()
        };
        self.planned.into_iter().map(|(turn, requests)| (turn, actions(requests))).collect()
    }

    /// Records answers durably and releases the claim.
    pub(crate) fn record_answers(&mut self, answers: Vec<RequestAnswer>) -> Result<(), SimError> {
        let claim = self.claim.take();
        if answers.is_empty() {
            return Ok(());
        }
        let mut log = claim.map_or_else(|| LockedLog::lock(&self.tail.path), Ok)?;
        let lines: Vec<RequestLogLine> = answers.into_iter().map(RequestLogLine::Answer).collect();
        log.append(&lines).map(drop)
    }
}

/// The unread end of the file.
#[derive(Debug)]
struct LogTail {
    path: PathBuf,
    /// The number of bytes read, in complete lines.
    read_bytes: u64,
}

impl LogTail {
    fn new(path: &Path, read_bytes: u64) -> Self {
        Self { path: path.to_owned(), read_bytes }
    }

    fn read_new_lines(&mut self) -> Result<Vec<RequestLogLine>, SimError> {
        let read = |error| SimError::io("read", &self.path)(error);
        let length = match std::fs::metadata(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            metadata => metadata.map_err(read)?.len(),
        };
        if length <= self.read_bytes {
            return Ok(Vec::new());
        }
        if length - self.read_bytes > REQUEST_BYTES_MAX {
            let what = format!("it has more than {REQUEST_BYTES_MAX} new bytes of requests");
            return Err(SimError::damaged(&self.path, what));
        }
        let mut file =
            polity_files::open_named_file(&self.path).map_err(|error| read(error.into()))?;
        file.seek(SeekFrom::Start(self.read_bytes)).map_err(read)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(read)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.read_bytes += whole as u64;
        Ok(parse(&text[..whole]))
    }
}

/// Watches for the answer to a request. It reads each line once.
#[derive(Debug)]
pub struct AnswerWatch {
    request_id: String,
    tail: LogTail,
}

impl AnswerWatch {
    /// Creates a watch from the start of the file.
    pub(crate) fn from_start(path: &Path, request_id: &str) -> Self {
        Self { request_id: request_id.to_owned(), tail: LogTail::new(path, 0) }
    }

    /// Returns the answer if it is among the new lines.
    pub fn poll(&mut self) -> Result<Option<RequestAnswer>, SimError> {
        let answers = self.tail.read_new_lines()?.into_iter().filter_map(|line| match line {
            RequestLogLine::Answer(answer) => Some(answer),
            _ => None,
        });
        Ok(answers.into_iter().find(|answer| answer.request_id == self.request_id))
    }
}

/// Returns the requests of some lines, with the turns of their answers, and all answers by id.
fn with_answers(lines: Vec<RequestLogLine>) -> (Vec<OutsideRequest>, HashMap<String, u64>) {
    let mut requests = Vec::new();
    let mut answers: HashMap<String, u64> = HashMap::new();
    for line in lines {
        match line {
            RequestLogLine::Request { request_id: id, turn, action } => {
                requests.push(OutsideRequest { id, action: Ok(action), turn, answered_in: None });
            }
            RequestLogLine::Unreadable { request_id: id, reason } => {
                let (action, turn) = (Err(reason), None);
                requests.push(OutsideRequest { id, action, turn, answered_in: None });
            }
            RequestLogLine::Foreign { .. } => {}
            // Only the first answer counts; a resumed run repeats it.
            RequestLogLine::Answer(answer) => {
                answers.entry(answer.request_id).or_insert(answer.turn);
            }
        }
    }
    for request in &mut requests {
        request.answered_in = answers.get(&request.id).copied();
    }
    (requests, answers)
}

/// Parses lines. Unknown lines do not end a run in progress; an invalid request with an id is
/// answered.
fn parse(text: &[u8]) -> Vec<RequestLogLine> {
    let lines = text.split(|byte| *byte == b'\n').zip(1..);
    let lines = lines.filter(|(line, _)| !line.trim_ascii().is_empty());
    lines
        .map(|(line, number)| match serde_json::from_slice(line) {
            Ok(line) => line,
            Err(error) => unreadable(line, &error).unwrap_or(RequestLogLine::Foreign { number }),
        })
        .collect()
}

fn unreadable(line: &[u8], error: &serde_json::Error) -> Option<RequestLogLine> {
    let line: serde_json::Value = serde_json::from_slice(line).ok()?;
    let request_id = line.get("request")?.get("request_id")?.as_str()?.to_owned();
    Some(RequestLogLine::Unreadable { request_id, reason: format!("this is no request: {error}") })
}

/// Checks that all lines are readable and every answer follows its request. A resumed run repeats
/// them, so none may be missing.
fn check_complete(path: &Path, lines: &[RequestLogLine]) -> Result<(), SimError> {
    let mut asked = HashSet::new();
    for line in lines {
        let missing = match line {
            RequestLogLine::Request { request_id, .. }
            | RequestLogLine::Unreadable { request_id, .. } => {
                asked.insert(request_id);
                continue;
            }
            RequestLogLine::Answer(answer) if asked.contains(&answer.request_id) => continue,
            RequestLogLine::Answer(RequestAnswer { request_id, .. }) => {
                format!("the request {request_id} is missing, but its answer exists")
            }
            RequestLogLine::Foreign { number } => {
                format!("line {number} is neither a request nor an answer")
            }
        };
        let reason = format!(
            "{missing}, so the run may not be repeatable; restore the file, or \
             remove the line to continue without it"
        );
        return Err(SimError::damaged(path, reason));
    }
    Ok(())
}

/// Submits a request, from any process. Returns a watch for its answer.
pub(crate) fn submit(
    path: &Path,
    id: &str,
    action: LifecycleAction,
) -> Result<AnswerWatch, SimError> {
    let request_id = id.to_owned();
    let request = RequestLogLine::Request { request_id: request_id.clone(), turn: None, action };
    let offset = append(path, &[request])?;
    Ok(AnswerWatch { request_id, tail: LogTail::new(path, offset) })
}

/// Returns the requests handled after a turn, each with its turn.
pub(crate) fn requests_after(path: &Path, turn: u64) -> Result<Vec<RequestLogLine>, SimError> {
    let mut lines = Vec::new();
    for (turn, requests) in RequestLog::open(path, turn)?.planned {
        for OutsideRequest { id, action, .. } in requests {
            // An unreadable request has changed nothing.
            let Ok(action) = action else { continue };
            lines.push(RequestLogLine::Request { request_id: id, turn: Some(turn), action });
        }
    }
    Ok(lines)
}

/// Appends the requests of another run. The fork decides on them itself.
pub(crate) fn append_all(path: &Path, asked: &[RequestLogLine]) -> Result<(), SimError> {
    if asked.is_empty() { Ok(()) } else { append(path, asked).map(drop) }
}

/// Answers a request in place of a run that ended, unless the run has answered it. Returns the
/// answer of the run. Turn 0 makes a resumed run skip the request.
pub(crate) fn withdraw(
    path: &Path,
    request_id: &str,
    reason: &str,
) -> Result<Option<RequestAnswer>, SimError> {
    let mut log = LockedLog::lock(path)?;
    if let Some(answer) = AnswerWatch::from_start(path, request_id).poll()? {
        return Ok(Some(answer));
    }
    let verdict = RequestVerdict::refused(reason);
    let answer = RequestAnswer { request_id: request_id.to_owned(), turn: 0, verdict };
    log.append(&[RequestLogLine::Answer(answer)])?;
    Ok(None)
}

/// Appends complete lines under the lock and returns their offset.
fn append(path: &Path, lines: &[RequestLogLine]) -> Result<u64, SimError> {
    LockedLog::lock(path)?.append(lines)
}

/// The request file while this process alone may append to it.
#[derive(Debug)]
struct LockedLog {
    path: PathBuf,
    file: File,
}

impl LockedLog {
    /// Waits for the lock. Processes hold it only while they append, or end a turn.
    fn lock(path: &Path) -> Result<Self, SimError> {
        let write = |error| SimError::io("write", path)(error);
        let file = files::open_or_create(path)?;
        file.lock().map_err(write)?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Appends complete lines durably and returns their offset.
    fn append(&mut self, lines: &[RequestLogLine]) -> Result<u64, SimError> {
        let (path, file) = (self.path.as_path(), &mut self.file);
        let write = |error| SimError::io("write", path)(error);
        let mut text = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut text, line).map_err(|error| write(error.into()))?;
            text.push(b'\n');
        }
        // An unfinished line of a crashed process is removed first.
        let mut length = file.metadata().map_err(write)?.len();
        if length > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1)).and_then(|_| file.read_exact(&mut last)).map_err(write)?;
            if last != *b"\n" {
                length = complete_length(file, length).map_err(write)?;
                file.set_len(length).map_err(write)?;
            }
        }
        file.seek(SeekFrom::Start(length)).map_err(write)?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(write)?;
        if length == 0 {
            files::sync_name(path)?;
        }
        Ok(length)
    }
}

/// Returns the length of all complete lines.
fn complete_length(file: &mut File, length: u64) -> std::io::Result<u64> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(length).read_to_end(&mut text)?;
    Ok(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end as u64 + 1))
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
