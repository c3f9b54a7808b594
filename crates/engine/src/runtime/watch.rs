//! Notices what other processes commit, and tells the workers whose tasks it is about.

use std::sync::Weak;
use std::time::Duration;

use polity_model::event::{JournalPosition, StreamId};

use super::desk::Signal;
use super::{Shared, load};

/// How often the journal is looked at. Owners notice foreign commits within twice this.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How many events one look reads at most; the rest is read at once after it.
const HEADERS_MAX: u32 = 1000;

pub(super) async fn watch(shared: Weak<Shared>, mut seen: JournalPosition) {
    let mut behind = false;
    loop {
        if !behind {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let Some(shared) = shared.upgrade() else { return };
        shared.finish_business().await;
        let headers = load::blocking(&shared.parts.store, move |store| {
            store.headers_after(seen, HEADERS_MAX)
        })
        .await;
        match headers {
            Ok(headers) => {
                behind = headers.len() >= HEADERS_MAX as usize;
                for header in headers {
                    seen = header.position;
                    match header.stream {
                        StreamId::Task(id) => {
                            if !shared.desk.signal(id, Signal::Changed(header.sequence)) {
                                shared.look_after_waiting(id).await;
                            }
                        }
                        StreamId::Agent(name) => shared.look_at_agent(name).await,
                        StreamId::Session(_) | StreamId::Schedule(_) => {}
                    }
                }
            }
            // The next look may succeed, and commits report what is wrong in any case.
            Err(error) => {
                behind = false;
                tracing::warn!(%error, "the journal could not be looked at");
            }
        }
    }
}
