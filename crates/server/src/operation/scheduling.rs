//! The scheduler: starts the tasks of schedules at their due times.
//!
//! It sleeps until the earliest due time, a change of a schedule by another process, or the end of
//! a task that a schedule started. A record in the schedule's stream precedes each task, so a crash
//! between the two is repaired at the next pass, and two servers never start a due time twice.

mod watched;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use polity_definition::Home;
use polity_engine::clock::{Clock as _, SystemClock};
use polity_engine::runtime::remove_schedule;
use polity_model::event::{Event, StreamId};
use polity_model::ids::TaskId;
use polity_model::name::Name;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use self::watched::{EndedRun, ScheduleWork, WatchedSchedule};
use super::event_hub::JournalFrame;
use crate::state::ServerState;

/// The longest sleep. The clock may jump meanwhile, and files may change.
const SLEEP_MAX: Duration = Duration::from_secs(30);

/// The time after which a record of a new schedule is followed by a look at the files.
const LOOK_AGAIN_TIME: Duration = Duration::from_millis(600);

/// The most schedules that are decided on at once, so that their commits share disk writes.
const CONCURRENT_DECISIONS: usize = 64;

/// Runs the schedules of the home until the server drains.
pub(crate) async fn run_schedules(state: Weak<ServerState>) {
    let Some(strong) = state.upgrade() else { return };
    let mut live = strong.hub.subscribe();
    drop(strong);
    let mut queue = ScheduleQueue::new();
    loop {
        let Some(strong) = state.upgrade() else { return };
        if strong.is_draining() {
            return;
        }
        queue.pass(&strong).await;
        let wait = queue.time_to_wait();
        drop(strong);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            frame = live.recv() => match frame {
                Ok(frame) => queue.notice(&frame),
                Err(RecvError::Lagged(_)) => queue.reload_all(),
                Err(RecvError::Closed) => return,
            },
        }
        while let Ok(frame) = live.try_recv() {
            queue.notice(&frame);
        }
    }
}

/// The schedules of the home, ordered by the time of their next decision.
struct ScheduleQueue {
    watched: HashMap<Name, WatchedSchedule>,
    wakes: BTreeSet<(Timestamp, Name)>,
    /// The schedule of each task that has not ended.
    running: HashMap<TaskId, Name>,
    /// The work that events gave reason for.
    pending: BTreeMap<Name, ScheduleWork>,
    /// The definitions that `watched` is made of.
    home: Option<Arc<Home>>,
    /// The time of the next look at the files.
    next_look: Instant,
    /// The time of the next comparison of records with tasks.
    next_check: Instant,
}

impl ScheduleQueue {
    fn new() -> Self {
        Self {
            watched: HashMap::new(),
            wakes: BTreeSet::new(),
            running: HashMap::new(),
            pending: BTreeMap::new(),
            home: None,
            next_look: Instant::now(),
            next_check: Instant::now() + SLEEP_MAX,
        }
    }

    /// Decides on everything that is due.
    async fn pass(&mut self, state: &Arc<ServerState>) {
        let started = Instant::now();
        let home = if started >= self.next_look {
            self.next_look = started + SLEEP_MAX;
            state.home()
        } else {
            state.loaded_home()
        };
        if self.home.as_ref().is_none_or(|before| !Arc::ptr_eq(before, &home)) {
            self.adopt_definitions(state, &home).await;
            self.home = Some(Arc::clone(&home));
        }
        if started >= self.next_check {
            self.check_running();
        }
        let now = SystemClock.now();
        while let Some((wake, name)) = self.wakes.pop_first() {
            if wake > now {
                self.wakes.insert((wake, name));
                break;
            }
            self.pending.entry(name).or_default();
        }
        self.perform(state, &home).await;
    }

    /// Compares the definitions with the watched schedules.
    async fn adopt_definitions(&mut self, state: &Arc<ServerState>, home: &Arc<Home>) {
        let mut flushed = Vec::new();
        for (name, definition) in &home.schedules {
            match self.watched.get(name) {
                Some(watched) if *watched.definition == **definition && !watched.is_removed() => {}
                // Due times until now belong to the definition before.
                Some(watched) if !watched.definition.enabled => flushed.push(name.clone()),
                Some(_) | None => {
                    self.pending.entry(name.clone()).or_default();
                }
            }
        }
        for name in flushed {
            self.pending.entry(name).or_default();
        }
        if let Some(before) = self.home.clone() {
            self.perform(state, &before).await;
        }
        for (name, definition) in &home.schedules {
            let is_same =
                |one: &WatchedSchedule| *one.definition == **definition && !one.is_removed();
            if self.watched.get(name).is_some_and(is_same) {
                continue;
            }
            let record = self.watched.remove(name).and_then(|watched| {
                self.forget_wake(name, watched.wake);
                watched.record
            });
            let watched = WatchedSchedule::new(Arc::clone(definition), record);
            self.watched.insert(name.clone(), watched);
            self.pending.entry(name.clone()).or_default();
        }
        let gone: Vec<_> = self
            .watched
            .keys()
            .filter(|name| !home.schedules.contains_key(*name))
            .cloned()
            .collect();
        for name in gone {
            if let Some(watched) = self.watched.remove(&name) {
                self.forget_wake(&name, watched.wake);
            }
            self.pending.remove(&name);
            let store = state.host.queries().store();
            match remove_schedule(&**store, &SystemClock, &name).await {
                Ok(()) => tracing::info!(schedule = %name, "removed"),
                Err(error) => tracing::error!(schedule = %name, %error, "cannot record a removal"),
            }
        }
        let watched = &self.watched;
        self.running.retain(|_, name| watched.contains_key(name));
    }

    fn forget_wake(&mut self, name: &Name, wake: Option<Timestamp>) {
        if let Some(wake) = wake {
            self.wakes.remove(&(wake, name.clone()));
        }
    }

    /// Performs the pending work, many schedules at once.
    async fn perform(&mut self, state: &Arc<ServerState>, home: &Arc<Home>) {
        let mut work = Vec::new();
        for (name, item) in std::mem::take(&mut self.pending) {
            if let Some(watched) = self.watched.remove(&name) {
                self.forget_wake(&name, watched.wake);
                work.push((watched, item));
            }
        }
        if work.is_empty() {
            return;
        }
        let toggles = match state.host.queries().agent_toggles().await {
            Ok(toggles) => toggles,
            Err(error) => {
                tracing::error!(%error, "cannot read which agents are enabled");
                for (mut watched, item) in work {
                    watched.retry_soon();
                    let name = watched.definition.name.clone();
                    self.pending.insert(name, item);
                    self.put_back(watched);
                }
                return;
            }
        };
        let toggles = &toggles;
        let done: Vec<_> = futures_util::stream::iter(work)
            .map(|(watched, item)| watched.perform(state, home, toggles, item))
            .buffer_unordered(CONCURRENT_DECISIONS)
            .collect()
            .await;
        for watched in done {
            self.put_back(watched);
        }
    }

    fn put_back(&mut self, watched: WatchedSchedule) {
        let name = watched.definition.name.clone();
        if let Some(wake) = watched.wake {
            self.wakes.insert((wake, name.clone()));
        }
        for run in watched.record.iter().flat_map(|record| &record.state.running) {
            self.running.insert(run.task_id, name.clone());
        }
        if watched.is_removed() {
            self.next_look = self.next_look.min(Instant::now() + LOOK_AGAIN_TIME);
        }
        if watched.has_open_start {
            let soon = Instant::now() + watched::OPEN_START_TIME;
            self.next_check = self.next_check.min(soon);
        }
        self.watched.insert(name, watched);
    }

    /// Compares the runs that have not ended with their tasks at the next pass.
    fn check_running(&mut self) {
        self.next_check = Instant::now() + SLEEP_MAX;
        for (name, watched) in &self.watched {
            let is_idle = watched.record.as_ref().is_some_and(|one| one.state.running.is_empty());
            if !is_idle {
                self.pending.entry(name.clone()).or_default().check_tasks = true;
            }
        }
    }

    /// Reads all streams again at the next pass, because events were lost.
    fn reload_all(&mut self) {
        self.check_running();
        for name in self.watched.keys() {
            self.pending.entry(name.clone()).or_default().reload = true;
        }
    }

    /// Takes in an event of this or another process.
    fn notice(&mut self, frame: &JournalFrame) {
        let recorded = &frame.recorded;
        match &recorded.stream {
            StreamId::Schedule(name) => match self.watched.get(name) {
                Some(watched) => {
                    let known = watched.record.as_ref().map(|record| record.sequence);
                    if known.is_none_or(|known| known < recorded.sequence) {
                        self.pending.entry(name.clone()).or_default().reload = true;
                    }
                }
                None => self.next_look = self.next_look.min(Instant::now() + LOOK_AGAIN_TIME),
            },
            StreamId::Task(task_id) => {
                let completed = matches!(recorded.event, Event::TaskCompleted { .. });
                let cancelled = recorded.event == Event::TaskCancelled;
                if !completed && !cancelled && !matches!(recorded.event, Event::TaskFailed { .. }) {
                    return;
                }
                if let Some(name) = self.running.remove(task_id) {
                    let run = EndedRun { task_id: *task_id, completed, cancelled };
                    self.pending.entry(name).or_default().ended.push(run);
                }
            }
            StreamId::Session(_) | StreamId::Agent(_) => {}
        }
    }

    /// The time until the next decision, look or check.
    fn time_to_wait(&self) -> Duration {
        if !self.pending.is_empty() {
            return watched::RETRY_TIME;
        }
        let until_wake = self.wakes.first().map_or(SLEEP_MAX, |(wake, _)| {
            Duration::try_from(wake.duration_since(SystemClock.now())).unwrap_or_default()
        });
        let until_other = self.next_look.min(self.next_check).duration_since(Instant::now());
        until_wake.min(until_other).min(SLEEP_MAX)
    }
}
