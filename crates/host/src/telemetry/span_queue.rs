//! The bounded queue of finished spans, and the loop that sends them.

use std::time::Duration;

use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The queue capacity. Spans beyond it are lost.
const QUEUE_SPANS_MAX: usize = 2048;

/// The most spans in a batch.
const BATCH_SPANS_MAX: usize = 512;

/// The time that a batch waits for more spans.
const BATCH_WAIT: Duration = Duration::from_secs(1);

/// The timeout of sending a batch, with all attempts.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The result of sending spans.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SpanDelivery {
    /// The number of lost spans.
    pub(super) lost: usize,
    /// The reason of the last loss.
    pub(super) reason: Option<String>,
}

/// The sending end of the span queue, which never blocks.
pub(super) struct SpanQueue {
    queue: mpsc::Sender<SpanData>,
    lost: usize,
}

/// Creates a queue.
pub(super) fn span_queue() -> (SpanQueue, mpsc::Receiver<SpanData>) {
    let (queue, spans) = mpsc::channel(QUEUE_SPANS_MAX);
    (SpanQueue { queue, lost: 0 }, spans)
}

impl SpanQueue {
    /// Queues spans, counting those that do not fit.
    pub(super) fn put(&mut self, spans: Vec<SpanData>) {
        for span in spans {
            if self.queue.try_send(span).is_err() {
                self.lost += 1;
            }
        }
    }

    /// Closes the queue and returns the number of spans that did not fit.
    pub(super) fn close(self) -> usize {
        self.lost
    }
}

/// Sends queued spans in batches until the queue is closed and empty.
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

    /// A receiver that records the number of sent spans, and can fail.
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
    async fn spans_are_batched_and_overflow_is_counted() {
        let receiver = FakeReceiver::default();
        let (unplaced, delivery) = sent(&receiver, QUEUE_SPANS_MAX + 3).await;
        assert_eq!((unplaced, delivery), (3, SpanDelivery::default()));
        assert_eq!(*receiver.batches.lock().unwrap(), [BATCH_SPANS_MAX; 4]);
    }

    #[tokio::test]
    async fn rejected_spans_are_counted_with_the_reason() {
        let receiver = FakeReceiver { is_down: true, ..FakeReceiver::default() };
        let (_, delivery) = sent(&receiver, BATCH_SPANS_MAX + 1).await;
        let expected = SpanDelivery { lost: BATCH_SPANS_MAX + 1, reason: Some("down".to_owned()) };
        assert_eq!(delivery, expected);
    }
}
