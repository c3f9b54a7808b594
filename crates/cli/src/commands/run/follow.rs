//! Following a task that this process runs, until it ends.

use std::path::Path;
use std::time::Duration;

use polity_engine::clock::{Clock, SystemClock};
use polity_engine::decide::Rejection;
use polity_engine::runtime::{EngineError, Live, TaskHandle};
use polity_model::event::StreamId;
use polity_model::ids::TaskId;
use polity_model::task::Task;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::broadcast;

use crate::app::{App, Workshop};
use crate::error::CliError;
use crate::view::live::LiveView;
use crate::view::{note, style};

/// How often the line of the step under way is drawn anew.
const TICK: Duration = Duration::from_millis(100);

/// Shows a task's steps until it ends or waits for a person. Ctrl-C cancels it; a second one, or a
/// request to terminate, quits at once and leaves it interrupted.
pub(crate) async fn follow(
    app: &App,
    workshop: &Workshop,
    mut handle: TaskHandle,
    mut live: broadcast::Receiver<Live>,
) -> Result<Task, CliError> {
    let id = handle.id;
    let mut signals = Signals::listen()?;
    let mut view = LiveView::new(app);
    if app.shows_progress() {
        note!("{} {id}", style::label("task"));
    }
    let mut tick = tokio::time::interval(TICK);
    let mut asked_to_stop = false;
    let stream = StreamId::Task(id);
    show_written(workshop, &stream, &mut view)?;
    let outcome = loop {
        tokio::select! {
            biased;
            signal = signals.next() => {
                view.clear();
                if asked_to_stop || signal == Stop::Terminate {
                    quit(app, id);
                }
                asked_to_stop = true;
                note!("cancelling; once more to quit and leave it interrupted");
                match workshop.runtime.cancel(id).await {
                    // It ended before it could be cancelled: its outcome comes next.
                    Ok(_) | Err(EngineError::Rejected(Rejection::Finished { .. })) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            event = live.recv() => match event {
                Ok(Live::Event(event)) if event.stream == stream => view.see(&event),
                Ok(Live::Text { task, piece }) if task == id => view.hear(&piece),
                Ok(Live::Event(_) | Live::Text { .. }) => {}
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    show_written(workshop, &stream, &mut view)?;
                }
                Err(broadcast::error::RecvError::Closed) => break handle.wait().await,
            },
            outcome = handle.wait() => break outcome,
            _ = tick.tick() => view.tick(SystemClock.now()),
        }
    };
    show_written(workshop, &stream, &mut view)?;
    view.clear();
    outcome?;
    workshop.task(app, id)
}

/// Ends the program at once, and waits for nothing: not for a disk that hangs, nor for a model. The
/// journal is whole at every moment, and the system lets go of what this process holds.
fn quit(app: &App, id: TaskId) -> ! {
    let left = CliError::conflict(format!("left task {id} interrupted"))
        .hint(format!("go on with `polity task resume {id}`"));
    left.print(app.json());
    std::process::exit(left.exit().code().into())
}

/// Shows what the journal has of the task beyond what was shown.
fn show_written(
    workshop: &Workshop,
    stream: &StreamId,
    view: &mut LiveView,
) -> Result<(), CliError> {
    for recorded in workshop.store.events(stream, view.seen())? {
        view.see(&recorded);
    }
    Ok(())
}

/// What a person or a machine can ask of a running process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Ctrl-C.
    Interrupt,
    /// The end of the machine, or of whoever started the process.
    Terminate,
}

/// Both kinds of requests, listened to from the beginning, so that none is missed.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> Result<Self, CliError> {
        let io = |error| CliError::io("listen to", Path::new("signals"), &error);
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(io)?,
            terminate: signal(SignalKind::terminate()).map_err(io)?,
        })
    }

    async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.interrupt.recv() => Stop::Interrupt,
            _ = self.terminate.recv() => Stop::Terminate,
        }
    }
}
