//! File operations that may hang: on the files of a program, which may be on any file system.

use std::io;
use std::time::Duration;

use tokio::sync::oneshot;

/// Runs a file operation on a thread of its own, up to a time limit. An operation that hangs in the
/// kernel cannot be ended, so its thread is left behind; it blocks neither this nor the exit.
pub(crate) async fn with_time_limit<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (sender, done) = oneshot::channel();
    std::thread::Builder::new().name("polity-files".to_owned()).spawn(move || {
        // The receiver gave up.
        let _ = sender.send(work());
    })?;
    match tokio::time::timeout(limit, done).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(_)) => Err(io::Error::other("the file operation panicked")),
        Err(_) => {
            let message = format!("the file system did not answer within {} s", limit.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn hanging_file_system_does_not_block_the_runtime() {
        let (_release, hang) = std::sync::mpsc::channel::<()>();
        let limit = Duration::from_secs(1);
        let error = with_time_limit(limit, move || hang.recv().is_ok()).await.unwrap_err();
        assert_eq!(error.to_string(), "the file system did not answer within 1 s");
        assert_eq!(with_time_limit(Duration::from_mins(1), || 7).await.unwrap(), 7);
    }
}
