//! A transport wrapper: records which calls were sent, and bounds the wait for the lifecycle probe.
//!
//! The client probes with `server/discover`. Older servers should reject the unknown method. If one
//! stays silent for [`PROBE_TIMEOUT`], the wrapper rejects it in the server's place.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use tokio::time::Instant;

/// The longest wait for an answer to `server/discover` before the older handshake is used.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// True once a request was handed to the transport. Travels with the request.
#[derive(Debug, Clone, Default)]
pub(crate) struct SentFlag(Arc<AtomicBool>);

impl SentFlag {
    /// True if the server may have received the request or a part of it.
    pub(crate) fn is_sent(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// True if the server answered the probe after the timeout.
#[derive(Debug, Clone, Default)]
pub(crate) struct LateProbeAnswer(Arc<AtomicBool>);

impl LateProbeAnswer {
    /// True if the server is slow but supports the newer lifecycle.
    pub(crate) fn has_arrived(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// A transport that watches for the probe and for tool calls.
pub(crate) struct ProbedTransport<T> {
    transport: T,
    probe: ProbeState,
    probe_timeout: Duration,
    late_answer: LateProbeAnswer,
}

enum ProbeState {
    /// No probe is active.
    Idle,
    /// The probe was sent and expires at this time.
    Pending(RequestId, Instant),
    /// The probe expired and was answered by the wrapper.
    Expired(RequestId),
}

impl<T> ProbedTransport<T> {
    pub(crate) fn new(transport: T, probe_timeout: Duration, late_answer: LateProbeAnswer) -> Self {
        Self { transport, probe: ProbeState::Idle, probe_timeout, late_answer }
    }

    /// Tracks the answer to the probe; drops one that comes after the timeout.
    fn filter_probe_answer(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> Option<ServerJsonRpcMessage> {
        let answered = match &message {
            ServerJsonRpcMessage::Response(response) => Some(&response.id),
            ServerJsonRpcMessage::Error(error) => error.id.as_ref(),
            ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => None,
        };
        match &self.probe {
            ProbeState::Pending(id, _) if answered == Some(id) => self.probe = ProbeState::Idle,
            ProbeState::Expired(id) if answered == Some(id) => {
                if matches!(message, ServerJsonRpcMessage::Response(_)) {
                    self.late_answer.0.store(true, Ordering::SeqCst);
                }
                return None;
            }
            ProbeState::Idle | ProbeState::Pending(..) | ProbeState::Expired(_) => {}
        }
        Some(message)
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for ProbedTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        if let ClientJsonRpcMessage::Request(request) = &message {
            match &request.request {
                ClientRequest::DiscoverRequest(_) => {
                    let until = Instant::now() + self.probe_timeout;
                    self.probe = ProbeState::Pending(request.id.clone(), until);
                }
                ClientRequest::CallToolRequest(call) => {
                    // Set before the transport is called: it may send at once, and the caller may
                    // drop the future before it is polled.
                    if let Some(sent) = call.extensions.get::<SentFlag>() {
                        sent.0.store(true, Ordering::SeqCst);
                    }
                }
                _ => {}
            }
        }
        self.transport.send(message)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let message = if let ProbeState::Pending(id, until) = &self.probe {
                tokio::select! {
                    message = self.transport.receive() => message?,
                    () = tokio::time::sleep_until(*until) => {
                        let id = id.clone();
                        self.probe = ProbeState::Expired(id.clone());
                        let silent = "the server did not answer server/discover";
                        let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, silent, None);
                        return Some(ServerJsonRpcMessage::error(error, Some(id)));
                    }
                }
            } else {
                self.transport.receive().await?
            };
            if let Some(message) = self.filter_probe_answer(message) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.transport.close().await
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use rmcp::model::{CallToolRequest, CallToolRequestParams};

    use super::*;

    /// Asserts on send that the call is already flagged as sent.
    struct EagerTransport(SentFlag);

    impl Transport<RoleClient> for EagerTransport {
        type Error = io::Error;

        fn send(
            &mut self,
            _message: ClientJsonRpcMessage,
        ) -> impl Future<Output = io::Result<()>> + Send + 'static {
            assert!(self.0.is_sent());
            std::future::ready(Ok(()))
        }

        async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
            None
        }

        async fn close(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn call_is_flagged_as_sent_before_the_future_is_polled() {
        let sent = SentFlag::default();
        let mut request = CallToolRequest::new(CallToolRequestParams::new("echo"));
        request.extensions.insert(sent.clone());
        let request = ClientRequest::CallToolRequest(request);
        let message = ClientJsonRpcMessage::request(request, RequestId::Number(1));
        let mut transport = ProbedTransport::new(
            EagerTransport(sent.clone()),
            PROBE_TIMEOUT,
            LateProbeAnswer::default(),
        );
        drop(transport.send(message));
        assert!(sent.is_sent());
    }
}
