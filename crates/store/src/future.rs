//! The future that reads return.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use crate::StoreError;

/// The result of a read, ready at once or later.
///
/// A read that takes microseconds returns a ready future: no allocation and no thread change. A
/// read that may take long returns a boxed one.
#[must_use = "a read does nothing until its result is awaited"]
pub struct StoreFuture<'a, T, E = StoreError>(FutureState<'a, T, E>);

enum FutureState<'a, T, E> {
    Ready(std::future::Ready<Result<T, E>>),
    Pending(Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>),
}

// The result is never pinned: it is only moved out.
impl<T, E> Unpin for StoreFuture<'_, T, E> {}

impl<'a, T, E> StoreFuture<'a, T, E> {
    /// A future with this result.
    pub fn ready(result: Result<T, E>) -> Self {
        Self(FutureState::Ready(std::future::ready(result)))
    }

    /// A future that has to wait.
    pub fn pending(future: impl Future<Output = Result<T, E>> + Send + 'a) -> Self {
        Self(FutureState::Pending(Box::pin(future)))
    }

    /// Blocks this thread until the result is there, as [`block_on`] does.
    pub fn wait(self) -> Result<T, E> {
        match self.0 {
            FutureState::Ready(ready) => ready.into_inner(),
            FutureState::Pending(future) => block_on(future),
        }
    }
}

impl<T, E> Future for StoreFuture<'_, T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            FutureState::Ready(ready) => Pin::new(ready).poll(context),
            FutureState::Pending(future) => future.as_mut().poll(context),
        }
    }
}

impl<T, E> std::fmt::Debug for StoreFuture<'_, T, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_ready = matches!(self.0, FutureState::Ready(_));
        f.debug_struct("StoreFuture").field("is_ready", &is_ready).finish_non_exhaustive()
    }
}

struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread until a future is done. For threads that run no asynchronous work, which debug
/// builds check once the future has to wait: asynchronous code awaits.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(ThreadWaker(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => {
                let is_plain_thread = tokio::runtime::Handle::try_current().is_err();
                debug_assert!(is_plain_thread, "a store was waited for in asynchronous code");
                std::thread::park();
            }
        }
    }
}
