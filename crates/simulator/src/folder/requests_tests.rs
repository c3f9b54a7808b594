use super::*;
use crate::lifecycle::LifecycleOperation;

fn empty_log() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("requests.jsonl");
    (folder, path)
}

fn action(name: &str) -> LifecycleAction {
    LifecycleAction::new(LifecycleOperation::PauseAgent, name)
}

fn names(requests: &[OutsideRequest]) -> Vec<String> {
    let name = |request: &OutsideRequest| request.action.clone().unwrap().target_agent_name;
    requests.iter().map(name).collect()
}

fn answer(id: &str, turn: u64) -> RequestAnswer {
    RequestAnswer { request_id: id.to_owned(), turn, verdict: RequestVerdict::default() }
}

#[test]
fn resumed_run_handles_a_request_in_the_same_turn() {
    let (_folder, path) = empty_log();
    let mut log = RequestLog::open(&path, 0).unwrap();
    assert_eq!(log.claim(1).unwrap(), []);
    submit(&path, "1", action("a")).unwrap();
    submit(&path, "2", action("b")).unwrap();
    assert_eq!(names(&log.claim(2).unwrap()), ["a", "b"]);
    log.record_answers(vec![answer("1", 2), answer("2", 2)]).unwrap();
    assert_eq!(log.claim(3).unwrap(), []);
    submit(&path, "3", action("c")).unwrap();

    let mut resumed = RequestLog::open(&path, 1).unwrap();
    assert_eq!(names(&resumed.claim(2).unwrap()), ["a", "b", "c"]);
    drop(resumed);
    let mut resumed = RequestLog::open(&path, 2).unwrap();
    assert_eq!(names(&resumed.claim(3).unwrap()), ["c"]);
    let answer_to = |id| AnswerWatch::from_start(&path, id).poll().unwrap();
    assert_eq!(answer_to("2"), Some(answer("2", 2)));
    assert_eq!(answer_to("3"), None);
}

/// A process gives up its request while a resumed run looks at it.
#[test]
fn request_is_not_handled_after_its_withdrawal() {
    let (_folder, path) = empty_log();
    submit(&path, "1", action("a")).unwrap();
    submit(&path, "2", action("b")).unwrap();
    // The run has read the requests, but not handled them.
    let mut log = RequestLog::open(&path, 0).unwrap();
    assert_eq!(withdraw(&path, "1", "the run was stopped").unwrap(), None);
    assert_eq!(names(&log.claim(1).unwrap()), ["b"]);
    log.record_answers(vec![answer("2", 1)]).unwrap();
    // A handled request is not withdrawn; its answer is returned.
    assert_eq!(withdraw(&path, "2", "the run was stopped").unwrap(), Some(answer("2", 1)));
    let mut resumed = RequestLog::open(&path, 0).unwrap();
    assert_eq!(names(&resumed.claim(1).unwrap()), ["b"]);
}

#[test]
fn claimed_request_cannot_be_withdrawn_before_its_answer() {
    let (_folder, path) = empty_log();
    let mut log = RequestLog::open(&path, 0).unwrap();
    submit(&path, "1", action("a")).unwrap();
    assert_eq!(names(&log.claim(1).unwrap()), ["a"]);
    std::thread::scope(|scope| {
        let withdrawn = scope.spawn(|| withdraw(&path, "1", "gone").unwrap());
        log.record_answers(vec![answer("1", 1)]).unwrap();
        assert_eq!(withdrawn.join().unwrap(), Some(answer("1", 1)));
    });
}

#[test]
fn concurrent_requests_are_handled_or_withdrawn_but_never_both() {
    const REQUESTS: usize = 200;
    let (_folder, path) = empty_log();
    let (handled, withdrawn) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..2)
            .map(|client| {
                let path = &path;
                scope.spawn(move || {
                    let ids = (0..REQUESTS).map(|number| format!("{client}-{number}"));
                    ids.filter(|id| {
                        submit(path, id, action(id)).unwrap();
                        withdraw(path, id, "gone").unwrap().is_none()
                    })
                    .collect::<HashSet<String>>()
                })
            })
            .collect();
        let mut log = RequestLog::open(&path, 0).unwrap();
        let mut handled = Vec::new();
        for turn in 1.. {
            let is_last = clients.iter().all(std::thread::ScopedJoinHandle::is_finished);
            let requests = log.claim(turn).unwrap();
            handled.extend(requests.iter().map(|request| request.id.clone()));
            let answers = requests.iter().map(|request| answer(&request.id, turn));
            log.record_answers(answers.collect()).unwrap();
            if is_last {
                break;
            }
        }
        let withdrawn = clients.into_iter().flat_map(|client| client.join().unwrap());
        (handled, withdrawn.collect::<HashSet<String>>())
    });
    assert_eq!(handled.len() + withdrawn.len(), 2 * REQUESTS);
    assert!(handled.iter().all(|id| !withdrawn.contains(id)));
}

#[test]
fn repeated_request_counts_once() {
    let (_folder, path) = empty_log();
    let mut log = RequestLog::open(&path, 0).unwrap();
    submit(&path, "1", action("a")).unwrap();
    submit(&path, "1", action("a")).unwrap();
    assert_eq!(names(&log.claim(1).unwrap()), ["a"]);
    log.record_answers(vec![answer("1", 1)]).unwrap();
    submit(&path, "1", action("a")).unwrap();
    assert_eq!(log.claim(2).unwrap(), []);
}

#[test]
fn answer_watch_reads_each_line_once() {
    let (_folder, path) = empty_log();
    let mut log = RequestLog::open(&path, 0).unwrap();
    log.record_answers(vec![answer("1", 7)]).unwrap();
    let mut watch = submit(&path, "1", action("a")).unwrap();
    assert_eq!(watch.poll().unwrap(), None, "what stands before is not looked at");
    log.record_answers(vec![answer("other", 8)]).unwrap();
    assert_eq!(watch.poll().unwrap(), None);
    log.record_answers(vec![answer("1", 9)]).unwrap();
    assert_eq!(watch.poll().unwrap(), Some(answer("1", 9)));
    assert_eq!(watch.poll().unwrap(), None, "it was read");
}

#[test]
fn unknown_lines_do_not_end_a_running_simulation() {
    let (_folder, path) = empty_log();
    let nonsense = concat!(
        "hello\n",
        "{\"request\": {\"request_id\": \"1\", \"operation\": \"dance\"}}\n",
        "[1, 2]\n",
    );
    let mut log = RequestLog::open(&path, 0).unwrap();
    std::fs::write(&path, nonsense).unwrap();
    submit(&path, "2", action("a")).unwrap();
    let taken = log.claim(1).unwrap();
    let ids: Vec<&str> = taken.iter().map(|request| request.id.as_str()).collect();
    assert_eq!(ids, ["1", "2"]);
    assert!(taken[0].action.clone().unwrap_err().starts_with("this is no request"));
    assert_eq!(names(&taken[1..]), ["a"]);
}

#[test]
fn resume_rejects_a_damaged_request_log() {
    let (_folder, path) = empty_log();
    let mut log = RequestLog::open(&path, 0).unwrap();
    submit(&path, "1", action("a")).unwrap();
    log.claim(1).unwrap();
    log.record_answers(vec![answer("1", 1)]).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let [request, reply] = *text.lines().collect::<Vec<_>>() else { panic!("{text}") };
    for (text, expected) in [
        (format!("{}\n{reply}\n", &request[..20]), "line 1 is neither a request nor an answer"),
        (format!("{request}\n\n{}\n", &reply[..20]), "line 3 is neither"),
        (format!("{reply}\n"), "the request 1 is missing"),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = RequestLog::open(&path, 0).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    std::fs::write(&path, text).unwrap();
    RequestLog::open(&path, 0).unwrap();
}

#[test]
fn unfinished_line_is_removed() {
    let (_folder, path) = empty_log();
    submit(&path, "1", action("a")).unwrap();
    let mut text = std::fs::read(&path).unwrap();
    text.extend_from_slice(b"{\"request\": {\"req");
    std::fs::write(&path, &text).unwrap();
    assert_eq!(names(&RequestLog::open(&path, 0).unwrap().claim(1).unwrap()), ["a"]);
    submit(&path, "2", action("b")).unwrap();
    assert_eq!(names(&RequestLog::open(&path, 0).unwrap().claim(1).unwrap()), ["a", "b"]);
}
