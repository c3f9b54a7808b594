//! Spans on their way to the receiver: a queue, and who empties it.

use std::time::Duration;

use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How many spans wait for a receiver that is slow. Those beyond are lost.
const QUEUE_SPANS_MAX: usize = 2048;

/// How many spans are sent at once.
const BATCH_SPANS_MAX: usize = 512;

/// How long a batch waits for more spans.
const BATCH_WAIT: Duration = Duration::from_secs(1);

/// How long a batch may be on its way, with all attempts.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// What became of the spans.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SpanDelivery {
    /// How many were lost.
    pub(super) lost: usize,
    /// Why the last of them were.
    pub(super) reason: Option<String>,
}

/// Where spans are put to be sent. Putting one there never waits.
pub(super) struct SpanQueue {
    queue: mpsc::Sender<SpanData>,
    lost: usize,
}

/// An span_queue, and the other end of its queue.
pub(super) fn span_queue() -> (SpanQueue, mpsc::Receiver<SpanData>) {
    let (queue, spans) = mpsc::channel(QUEUE_SPANS_MAX);
    (SpanQueue { queue, lost: 0 }, spans)
}

impl SpanQueue {
    /// Has spans sent.
    pub(super) fn put(&mut self, spans: Vec<SpanData>) {
        for span in spans {
            if self.queue.try_send(span).is_err() {
                self.lost += 1;
            }
        }
    }

    /// Takes no more, and says how many there was no room for.
    pub(super) fn close(self) -> usize {
        self.lost
    }
}

/// Sends what comes until the span_queue is closed and its queue empty.
pub(super) async fn deliver(
    exporter: &impl SpanExporter,
    mut spans: mpsc::Receiver<SpanData>,
) -> SpanDelivery {
    let mut delivery = SpanDelivery::default();
    while let Some(first) = spans.recv().await {
        let mut batch = vec![first];
        let fill = async {
            while batch.len() < BATCH_SPANS_MAX
                && let Some(span) = spans.recv().await
            {
                batch.push(span);
            }
        };
        // A batch that is not full in time is sent as it is.
        let _ = timeout(BATCH_WAIT, fill).await;
        let count = batch.len();
        let reason = match timeout(SEND_TIMEOUT, exporter.export(batch)).await {
            Ok(Ok(())) => continue,
            Ok(Err(OTelSdkError::InternalFailure(reason))) => reason,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} seconds", SEND_TIMEOUT.as_secs()),
        };
        delivery.lost += count;
        delivery.reason = Some(reason);
    }
    delivery
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use jiff::Timestamp;
    use opentelemetry::trace::SpanId;
    use opentelemetry_sdk::error::OTelSdkResult;
    use polity_model::event::StreamSequence;
    use polity_model::ids::TaskId;

    use super::super::span::{OpenSpan, SpanOperation, trace_id};
    use super::*;

    /// A receiver that takes notice of how much it was sent, and may be out of order.
    #[derive(Debug, Default)]
    struct FakeReceiver {
        batches: Mutex<Vec<usize>>,
        is_down: bool,
    }

    impl SpanExporter for FakeReceiver {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.batches.lock().unwrap().push(batch.len());
            if self.is_down {
                Err(OTelSdkError::InternalFailure("down".to_owned()))
            } else {
                Ok(())
            }
        }
    }

    fn spans(count: usize) -> Vec<SpanData> {
        let (task, now) = (TaskId::from_random_bytes([1; 16]), Timestamp::UNIX_EPOCH);
        let open =
            OpenSpan::new(SpanOperation::Chat, task, StreamSequence(1), SpanId::INVALID, now);
        vec![open.end(trace_id(task), None, now, Vec::new(), None); count]
    }

    async fn sent(receiver: &FakeReceiver, count: usize) -> (usize, SpanDelivery) {
        let (mut span_queue, queue) = span_queue();
        span_queue.put(spans(count));
        let unplaced = span_queue.close();
        (unplaced, deliver(receiver, queue).await)
    }

    #[tokio::test]
    async fn spans_are_sent_in_batches_and_those_beyond_the_queue_are_counted() {
        let receiver = FakeReceiver::default();
        let (unplaced, delivery) = sent(&receiver, QUEUE_SPANS_MAX + 3).await;
        assert_eq!((unplaced, delivery), (3, SpanDelivery::default()));
        assert_eq!(*receiver.batches.lock().unwrap(), [BATCH_SPANS_MAX; 4]);
    }

    #[tokio::test]
    async fn what_a_receiver_does_not_take_is_counted_with_the_reason() {
        let receiver = FakeReceiver { is_down: true, ..FakeReceiver::default() };
        let (_, delivery) = sent(&receiver, BATCH_SPANS_MAX + 1).await;
        let expected = SpanDelivery { lost: BATCH_SPANS_MAX + 1, reason: Some("down".to_owned()) };
        assert_eq!(delivery, expected);
    }
}
