//! The verdict: the journal shows that every accepted task has ended exactly once.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::load::answer_reviews;
use crate::served::{Connection, SoakEventReader, SoakServerAddress, newest_position};

/// The events that end a task.
const ENDINGS: [&str; 3] = ["task_completed", "task_failed", "task_cancelled"];

/// The pause between two looks at the open tasks.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Answers reviews until no task is open.
pub(super) fn wait_until_settled(address: &SoakServerAddress, deadline: Instant) -> Result<()> {
    let mut connection = Connection::open(address)?;
    loop {
        let reviews = answer_reviews(&mut connection)?.context("the server is gone")?;
        let open = open_tasks(&mut connection)?;
        if reviews == 0 && open == 0 {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{open} tasks do not end");
        thread::sleep(LOOK_INTERVAL);
    }
}

/// The number of tasks that have not ended.
fn open_tasks(connection: &mut Connection) -> Result<u64> {
    let metrics = connection.get("/metrics")?;
    ensure!(metrics.status == 200, "no metrics: {}", metrics.body);
    let numbers = metrics.body.lines().filter_map(|line| {
        line.strip_prefix("polity_tasks{")?.rsplit_once(' ')?.1.parse::<u64>().ok()
    });
    Ok(numbers.sum())
}

/// Checks the journal, and returns the number of all tasks that have ended.
pub(super) fn check_tasks(address: &SoakServerAddress, accepted: &[String]) -> Result<usize> {
    let newest = newest_position(address)?;
    let (mut created, mut ended) = (BTreeMap::new(), BTreeMap::new());
    let mut position = 0;
    while position < newest {
        let mut reader = SoakEventReader::open(address, position)?;
        while position < newest {
            let frame = reader.next_event()?;
            // The listener was too slow, and connects again.
            let Some(id) = frame.id else { break };
            position = id;
            let is_ending = ENDINGS.contains(&frame.event.as_str());
            if frame.event != "task_created" && !is_ending {
                continue;
            }
            let event: Value = serde_json::from_str(&frame.data)?;
            let task = event["stream"]["id"].as_str().context("an event has a stream")?.to_owned();
            let counts = if is_ending { &mut ended } else { &mut created };
            *counts.entry(task).or_insert(0_u32) += 1;
        }
    }
    for (what, counts) in [("created", &created), ("ended", &ended)] {
        let repeated = counts.iter().find(|(_, count)| **count != 1);
        ensure!(repeated.is_none(), "a task was {what} more than once: {repeated:?}");
    }
    for id in accepted {
        ensure!(created.contains_key(id), "the accepted task {id} is not in the journal");
        ensure!(ended.contains_key(id), "the accepted task {id} has not ended");
    }
    Ok(ended.len())
}
