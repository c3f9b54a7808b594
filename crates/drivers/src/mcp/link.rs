//! What is added to every transport: knowing whether a call has left, and a probe that is short.
//!
//! A client that speaks both eras asks `server/discover` first. A server of the older era should
//! refuse what it does not know; one that says nothing instead is taken for old after
//! [`PROBE_TIMEOUT`], by answering in its place.

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

/// How long a server may take to answer `server/discover` before it is asked in the older way.
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether a request has left. It travels with the request.
#[derive(Debug, Clone, Default)]
pub(super) struct Sent(Arc<AtomicBool>);

impl Sent {
    /// Whether the request, or a part of it, may have reached the server.
    pub(super) fn is_sent(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Whether an answer to the probe came after all.
#[derive(Debug, Clone, Default)]
pub(super) struct LateAnswer(Arc<AtomicBool>);

impl LateAnswer {
    /// The server is of the newer era, and only slow.
    pub(super) fn came(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// A transport that notices what leaves.
pub(super) struct Link<T> {
    transport: T,
    probe: Probe,
    probe_timeout: Duration,
    late: LateAnswer,
}

enum Probe {
    /// Not made, or answered.
    None,
    /// Under way until then.
    Asked(RequestId, Instant),
    /// Answered in the server's place.
    GivenUp(RequestId),
}

impl<T> Link<T> {
    pub(super) fn new(transport: T, probe_timeout: Duration, late: LateAnswer) -> Self {
        Self { transport, probe: Probe::None, probe_timeout, late }
    }

    /// Follows the probe; a message that must not be passed on is not given back.
    fn heed(&mut self, message: ServerJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
        let answered = match &message {
            ServerJsonRpcMessage::Response(response) => Some(&response.id),
            ServerJsonRpcMessage::Error(error) => error.id.as_ref(),
            ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => None,
        };
        match &self.probe {
            Probe::Asked(id, _) if answered == Some(id) => self.probe = Probe::None,
            Probe::GivenUp(id) if answered == Some(id) => {
                if matches!(message, ServerJsonRpcMessage::Response(_)) {
                    self.late.0.store(true, Ordering::SeqCst);
                }
                return None;
            }
            Probe::None | Probe::Asked(..) | Probe::GivenUp(_) => {}
        }
        Some(message)
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Link<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        if let ClientJsonRpcMessage::Request(request) = &message {
            match &request.request {
                ClientRequest::DiscoverRequest(_) => {
                    let until = Instant::now() + self.probe_timeout;
                    self.probe = Probe::Asked(request.id.clone(), until);
                }
                ClientRequest::CallToolRequest(call) => {
                    // Before it is handed on: a transport may send it at once, and whoever
                    // waits may be gone before the future is polled.
                    if let Some(sent) = call.extensions.get::<Sent>() {
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
            let message = if let Probe::Asked(id, until) = &self.probe {
                tokio::select! {
                    message = self.transport.receive() => message?,
                    () = tokio::time::sleep_until(*until) => {
                        let id = id.clone();
                        self.probe = Probe::GivenUp(id.clone());
                        let silent = "the server did not answer server/discover";
                        let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, silent, None);
                        return Some(ServerJsonRpcMessage::error(error, Some(id)));
                    }
                }
            } else {
                self.transport.receive().await?
            };
            if let Some(message) = self.heed(message) {
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

    /// Sends at once, and sees whether the call is known to have left.
    struct Eager(Sent);

    impl Transport<RoleClient> for Eager {
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
    fn a_call_has_left_before_anyone_waits_for_it() {
        let sent = Sent::default();
        let mut request = CallToolRequest::new(CallToolRequestParams::new("echo"));
        request.extensions.insert(sent.clone());
        let request = ClientRequest::CallToolRequest(request);
        let message = ClientJsonRpcMessage::request(request, RequestId::Number(1));
        let mut link = Link::new(Eager(sent.clone()), PROBE_TIMEOUT, LateAnswer::default());
        drop(link.send(message));
        assert!(sent.is_sent());
    }
}
