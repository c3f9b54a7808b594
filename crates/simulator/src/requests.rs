//! Requests from outside, and what became of them.
//!
//! Whoever wants something appends a line to `requests.jsonl`; the process that runs the
//! simulation reads new lines at the end of each turn and appends its answers. An answer says in
//! which turn the request was looked at, and is on disk before the next checkpoint: a run that is
//! resumed looks at it in the same turn again, and so ends as it would have. A fork takes over what
//! was looked at after it parted, each with its turn.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::SimError;
use crate::files;
use crate::lifecycle::{LifecycleAction, Opinion};

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    Request {
        request_id: String,
        /// The turn at whose end it is looked at; as soon as may be, if none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<u64>,
        #[serde(flatten)]
        action: LifecycleAction,
    },
    Answer(Answer),
    /// A request that makes no sense. It is never written.
    #[serde(skip)]
    Unreadable {
        request_id: String,
        reason: String,
    },
    /// What is no line of ours, by its number among those read at once. It is never written.
    #[serde(skip)]
    Foreign {
        number: usize,
    },
}

/// What became of a request from outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The request.
    pub request_id: String,
    /// The turn at whose end it was looked at, and done if it could be.
    pub turn: u64,
    /// What was said about it.
    #[serde(flatten)]
    pub opinion: Opinion,
}

/// A request from outside.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request {
    pub(crate) id: String,
    /// What is asked for; or why no one can tell.
    pub(crate) action: Result<LifecycleAction, String>,
    /// The turn that it is meant for, if it is for a certain one.
    turn: Option<u64>,
    /// The turn in which it was answered before the run was resumed.
    pub(crate) answered_in: Option<u64>,
}

/// The file of requests, as far as it was read.
#[derive(Debug)]
pub(crate) struct RequestLog {
    tail: Tail,
    /// Requests that were answered in turns that are still to come.
    planned: BTreeMap<u64, Vec<Request>>,
    /// Requests that no one has answered.
    new: Vec<Request>,
}

impl RequestLog {
    /// Reads the file of a run that goes on after `turn`.
    pub(crate) fn open(path: &Path, turn: u64) -> Result<Self, SimError> {
        Self::read(path, turn, check_whole)
    }

    /// Looks into the file of a run that is at the end of `turn`, and maybe under way.
    pub(crate) fn peek(path: &Path, turn: u64) -> Result<Self, SimError> {
        Self::read(path, turn, |_, _| Ok(()))
    }

    fn read(
        path: &Path,
        turn: u64,
        check: impl Fn(&Path, &[Line]) -> Result<(), SimError>,
    ) -> Result<Self, SimError> {
        let mut log = Self { tail: Tail::new(path, 0), planned: BTreeMap::new(), new: Vec::new() };
        let lines = log.tail.read_new()?;
        check(path, &lines)?;
        log.sort_in(turn, lines);
        Ok(log)
    }

    /// Puts requests where they belong, after `turn` is over.
    fn sort_in(&mut self, turn: u64, lines: Vec<Line>) {
        for request in answered(lines) {
            match (request.answered_in, request.turn) {
                (Some(planned), _) | (None, Some(planned)) if planned > turn => {
                    self.planned.entry(planned).or_default().push(request);
                }
                (Some(_), _) => {}
                (None, _) => self.new.push(request),
            }
        }
    }

    /// The requests to look at in this turn, in the order in which they were made.
    pub(crate) fn take(&mut self, turn: u64) -> Result<Vec<Request>, SimError> {
        let lines = self.tail.read_new()?;
        self.sort_in(turn.saturating_sub(1), lines);
        let mut requests = self.planned.remove(&turn).unwrap_or_default();
        requests.append(&mut self.new);
        Ok(requests)
    }

    /// What is to be looked at in turns to come, because it was before or is meant for them.
    pub(crate) fn answered(self) -> BTreeMap<u64, Vec<LifecycleAction>> {
        let actions = |requests: Vec<Request>| {
            requests.into_iter().filter_map(|request| request.action.ok()).collect()
        };
        self.planned.into_iter().map(|(turn, requests)| (turn, actions(requests))).collect()
    }

    /// Makes answers durable.
    pub(crate) fn answer(&self, answers: Vec<Answer>) -> Result<(), SimError> {
        let lines: Vec<Line> = answers.into_iter().map(Line::Answer).collect();
        append(&self.tail.path, &lines).map(drop)
    }
}

/// The end of the file, as far as it was not read yet.
#[derive(Debug)]
struct Tail {
    path: PathBuf,
    /// How much of it was read, in whole lines.
    read_bytes: u64,
}

impl Tail {
    fn new(path: &Path, read_bytes: u64) -> Self {
        Self { path: path.to_owned(), read_bytes }
    }

    fn read_new(&mut self) -> Result<Vec<Line>, SimError> {
        let read = |error| SimError::io("read", &self.path)(error);
        let length = match std::fs::metadata(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            metadata => metadata.map_err(read)?.len(),
        };
        if length <= self.read_bytes {
            return Ok(Vec::new());
        }
        let mut file = File::open(&self.path).map_err(read)?;
        file.seek(SeekFrom::Start(self.read_bytes)).map_err(read)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(read)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.read_bytes += whole as u64;
        Ok(parse(&text[..whole]))
    }
}

/// Looks for the answer to a request. What was looked through is not looked through again.
#[derive(Debug)]
pub struct AnswerWatch {
    request_id: String,
    tail: Tail,
}

impl AnswerWatch {
    /// Looks through the whole file.
    pub(crate) fn from_start(path: &Path, request_id: &str) -> Self {
        Self { request_id: request_id.to_owned(), tail: Tail::new(path, 0) }
    }

    /// What became of the request, if it was looked at.
    pub fn look(&mut self) -> Result<Option<Answer>, SimError> {
        let answers = self.tail.read_new()?.into_iter().filter_map(|line| match line {
            Line::Answer(answer) => Some(answer),
            Line::Request { .. } | Line::Unreadable { .. } | Line::Foreign { .. } => None,
        });
        Ok(answers.into_iter().find(|answer| answer.request_id == self.request_id))
    }
}

/// The requests of some lines, with the turns in which they were answered.
fn answered(lines: Vec<Line>) -> Vec<Request> {
    let mut requests = Vec::new();
    let mut answers: HashMap<String, u64> = HashMap::new();
    for line in lines {
        match line {
            Line::Request { request_id: id, turn, action } => {
                requests.push(Request { id, action: Ok(action), turn, answered_in: None });
            }
            Line::Unreadable { request_id: id, reason } => {
                requests.push(Request { id, action: Err(reason), turn: None, answered_in: None });
            }
            Line::Foreign { .. } => {}
            // Of a run that was resumed, only the first answer was ever told.
            Line::Answer(answer) => {
                answers.entry(answer.request_id).or_insert(answer.turn);
            }
        }
    }
    for request in &mut requests {
        request.answered_in = answers.get(&request.id).copied();
    }
    requests
}

/// The lines of the file. What is no line of ours was written by someone else and ends no run that is
/// under way; a request that can at least be answered is.
fn parse(text: &[u8]) -> Vec<Line> {
    let lines = text.split(|byte| *byte == b'\n').zip(1..);
    let lines = lines.filter(|(line, _)| !line.trim_ascii().is_empty());
    lines
        .map(|(line, number)| match serde_json::from_slice(line) {
            Ok(line) => line,
            Err(error) => unreadable(line, &error).unwrap_or(Line::Foreign { number }),
        })
        .collect()
}

fn unreadable(line: &[u8], error: &serde_json::Error) -> Option<Line> {
    let line: serde_json::Value = serde_json::from_slice(line).ok()?;
    let request_id = line.get("request")?.get("request_id")?.as_str()?.to_owned();
    Some(Line::Unreadable { request_id, reason: format!("this is no request: {error}") })
}

/// Whoever goes on with a run does again what was asked of it. So nothing of that may be missing:
/// all lines can be read, and there is a request before each answer.
fn check_whole(path: &Path, lines: &[Line]) -> Result<(), SimError> {
    let mut asked = HashSet::new();
    for line in lines {
        let missing = match line {
            Line::Request { request_id, .. } | Line::Unreadable { request_id, .. } => {
                asked.insert(request_id);
                continue;
            }
            Line::Answer(answer) if asked.contains(&answer.request_id) => continue,
            Line::Answer(Answer { request_id, .. }) => {
                format!("the request {request_id} is missing, and its answer is there")
            }
            Line::Foreign { number } => {
                format!("line {number} is neither a request nor an answer")
            }
        };
        let reason = format!(
            "{missing}, so no one knows whether the run would go the same way again; restore the \
             file, or remove the line to go on without it"
        );
        return Err(SimError::damaged(path, reason));
    }
    Ok(())
}

/// Asks for something, from any process. The answer will stand behind the request.
pub(crate) fn ask(path: &Path, id: &str, action: LifecycleAction) -> Result<AnswerWatch, SimError> {
    let request_id = id.to_owned();
    let request = Line::Request { request_id: request_id.clone(), turn: None, action };
    let place = append(path, &[request])?;
    Ok(AnswerWatch { request_id, tail: Tail::new(path, place) })
}

/// All that was looked at in a run after a turn, each meant for the turn in which it was looked at.
pub(crate) fn asked_after(path: &Path, turn: u64) -> Result<Vec<Line>, SimError> {
    let mut lines = Vec::new();
    for (turn, requests) in RequestLog::open(path, turn)?.planned {
        for Request { id, action, .. } in requests {
            // One that could not be read has changed nothing.
            let Ok(action) = action else { continue };
            lines.push(Line::Request { request_id: id, turn: Some(turn), action });
        }
    }
    Ok(lines)
}

/// Asks a fork for what was asked of another run. Whether it can be done is for the fork to say.
pub(crate) fn repeat(path: &Path, asked: &[Line]) -> Result<(), SimError> {
    if asked.is_empty() { Ok(()) } else { append(path, asked).map(drop) }
}

/// Answers a request in place of the run, which has ended before it was looked at. It counts as
/// looked at before the first turn, so whoever goes on with the run passes over it.
pub(crate) fn withdraw(path: &Path, request_id: &str, reason: &str) -> Result<(), SimError> {
    let opinion = Opinion::refused(reason);
    let answer = Answer { request_id: request_id.to_owned(), turn: 0, opinion };
    append(path, &[Line::Answer(answer)]).map(drop)
}

/// Appends whole lines, and says where they stand. Those who append take turns.
fn append(path: &Path, lines: &[Line]) -> Result<u64, SimError> {
    let write = |error| SimError::io("write", path)(error);
    let mut text = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut text, line).map_err(|error| write(error.into()))?;
        text.push(b'\n');
    }
    let mut file =
        OpenOptions::new().read(true).append(true).create(true).open(path).map_err(write)?;
    file.lock().map_err(write)?;
    // A line that its writer did not live to finish is ended, so that it does not spoil this one.
    let mut length = file.metadata().map_err(write)?.len();
    if length > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1)).and_then(|_| file.read_exact(&mut last)).map_err(write)?;
        if last != *b"\n" {
            length = whole_lines(&mut file, length).map_err(write)?;
            file.set_len(length).map_err(write)?;
        }
    }
    file.write_all(&text).and_then(|()| file.sync_all()).map_err(write)?;
    if length == 0 {
        files::keep_name(path)?;
    }
    Ok(length)
}

/// How much of the file is whole lines.
fn whole_lines(file: &mut File, length: u64) -> std::io::Result<u64> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(length).read_to_end(&mut text)?;
    Ok(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end as u64 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::Operation;

    fn action(name: &str) -> LifecycleAction {
        LifecycleAction::new(Operation::PauseAgent, name)
    }

    fn names(requests: &[Request]) -> Vec<String> {
        let name = |request: &Request| request.action.clone().unwrap().target_agent_name;
        requests.iter().map(name).collect()
    }

    fn answer(id: &str, turn: u64) -> Answer {
        Answer { request_id: id.to_owned(), turn, opinion: Opinion::default() }
    }

    #[test]
    fn a_request_is_looked_at_once_and_in_the_same_turn_after_a_resume() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests.jsonl");
        let mut log = RequestLog::open(&path, 0).unwrap();
        assert_eq!(log.take(1).unwrap(), []);
        ask(&path, "1", action("a")).unwrap();
        ask(&path, "2", action("b")).unwrap();
        assert_eq!(names(&log.take(2).unwrap()), ["a", "b"]);
        log.answer(vec![answer("1", 2), answer("2", 2)]).unwrap();
        assert_eq!(log.take(3).unwrap(), []);
        ask(&path, "3", action("c")).unwrap();

        let mut resumed = RequestLog::open(&path, 1).unwrap();
        assert_eq!(names(&resumed.take(2).unwrap()), ["a", "b", "c"]);
        let mut resumed = RequestLog::open(&path, 2).unwrap();
        assert_eq!(names(&resumed.take(3).unwrap()), ["c"]);
        let answer_to = |id| AnswerWatch::from_start(&path, id).look().unwrap();
        assert_eq!(answer_to("2"), Some(answer("2", 2)));
        assert_eq!(answer_to("3"), None);
    }

    #[test]
    fn an_answer_is_looked_for_behind_its_request_and_nothing_is_read_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests.jsonl");
        let log = RequestLog::open(&path, 0).unwrap();
        log.answer(vec![answer("1", 7)]).unwrap();
        let mut watch = ask(&path, "1", action("a")).unwrap();
        assert_eq!(watch.look().unwrap(), None, "what stands before is not looked at");
        log.answer(vec![answer("other", 8)]).unwrap();
        assert_eq!(watch.look().unwrap(), None);
        log.answer(vec![answer("1", 9)]).unwrap();
        assert_eq!(watch.look().unwrap(), Some(answer("1", 9)));
        assert_eq!(watch.look().unwrap(), None, "it was read");
    }

    #[test]
    fn lines_that_make_no_sense_end_no_run_that_is_under_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests.jsonl");
        let nonsense = concat!(
            "hello\n",
            "{\"request\": {\"request_id\": \"1\", \"operation\": \"dance\"}}\n",
            "[1, 2]\n",
        );
        let mut log = RequestLog::open(&path, 0).unwrap();
        std::fs::write(&path, nonsense).unwrap();
        ask(&path, "2", action("a")).unwrap();
        let taken = log.take(1).unwrap();
        let ids: Vec<&str> = taken.iter().map(|request| request.id.as_str()).collect();
        assert_eq!(ids, ["1", "2"]);
        assert!(taken[0].action.clone().unwrap_err().starts_with("this is no request"));
        assert_eq!(names(&taken[1..]), ["a"]);
    }

    #[test]
    fn whoever_goes_on_is_told_what_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests.jsonl");
        let mut log = RequestLog::open(&path, 0).unwrap();
        ask(&path, "1", action("a")).unwrap();
        log.take(1).unwrap();
        log.answer(vec![answer("1", 1)]).unwrap();
        let whole = std::fs::read_to_string(&path).unwrap();
        let [request, reply] = *whole.lines().collect::<Vec<_>>() else { panic!("{whole}") };
        let refused = |text: &str| {
            std::fs::write(&path, text).unwrap();
            RequestLog::open(&path, 0).unwrap_err().to_string()
        };
        let cut = refused(&format!("{}\n{reply}\n", &request[..20]));
        assert!(cut.contains("line 1 is neither a request nor an answer"), "{cut}");
        let cut = refused(&format!("{request}\n\n{}\n", &reply[..20]));
        assert!(cut.contains("line 3 is neither"), "{cut}");
        let missing = refused(&format!("{reply}\n"));
        assert!(missing.contains("the request 1 is missing"), "{missing}");
        std::fs::write(&path, whole).unwrap();
        RequestLog::open(&path, 0).unwrap();
    }

    #[test]
    fn a_line_that_was_not_finished_spoils_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests.jsonl");
        ask(&path, "1", action("a")).unwrap();
        let mut text = std::fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"request\": {\"req");
        std::fs::write(&path, &text).unwrap();
        assert_eq!(names(&RequestLog::open(&path, 0).unwrap().take(1).unwrap()), ["a"]);
        ask(&path, "2", action("b")).unwrap();
        assert_eq!(names(&RequestLog::open(&path, 0).unwrap().take(1).unwrap()), ["a", "b"]);
    }
}
