//! The protocol of service managers such as systemd: a socket that is passed at the start, and
//! messages about the state of the server.

use std::io;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::Weak;
use std::time::Duration;

use polity_drivers::EnvSource;
use polity_drivers::process::with_passed_descriptor;

use crate::state::ServerState;

/// The process that the sockets are for.
const LISTEN_PID: &str = "LISTEN_PID";

/// The number of passed sockets.
const LISTEN_FDS: &str = "LISTEN_FDS";

/// The address for messages.
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// The time after which a silent server is restarted, in microseconds.
const WATCHDOG_USEC: &str = "WATCHDOG_USEC";

/// The process whose silence is watched.
const WATCHDOG_PID: &str = "WATCHDOG_PID";

/// The listening socket that a service manager passed to this process, if it passed one.
pub(crate) fn passed_listener(environment: &EnvSource) -> io::Result<Option<TcpListener>> {
    let Some(number) = passed_sockets(environment, std::process::id()) else { return Ok(None) };
    let wrong = |reason: &str| io::Error::new(io::ErrorKind::InvalidInput, reason.to_owned());
    if number != 1 {
        return Err(wrong(&format!(
            "{LISTEN_FDS} is {number}, but the server listens on one socket"
        )));
    }
    let socket = with_passed_descriptor(|descriptor| {
        if !rustix::net::sockopt::socket_acceptconn(descriptor).unwrap_or(false) {
            return Err(wrong("the passed descriptor 3 is not a socket that listens"));
        }
        // Programs must not inherit it.
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?;
        descriptor.try_clone_to_owned()
    });
    let not_open = || wrong(&format!("{LISTEN_FDS} is set, but descriptor 3 is not open"));
    let socket = socket.ok_or_else(not_open)??;
    let listener = TcpListener::from(socket);
    listener
        .local_addr()
        .map_err(|_| wrong("the passed socket has no IP address; use ListenStream=ADDRESS:PORT"))?;
    listener.set_nonblocking(true)?;
    Ok(Some(listener))
}

/// The number of sockets that the environment announces for a process.
fn passed_sockets(environment: &EnvSource, own_pid: u32) -> Option<u32> {
    let number = |name| environment.get(name)?.parse::<u32>().ok();
    (number(LISTEN_PID)? == own_pid).then(|| number(LISTEN_FDS))?.filter(|number| *number > 0)
}

/// Sends messages to the service manager, if there is one.
#[derive(Debug)]
pub(crate) struct ServiceNotifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl ServiceNotifier {
    /// Finds the service manager in the environment. One that cannot be reached is logged.
    pub(crate) fn new(environment: &EnvSource) -> Self {
        let socket = environment.get(NOTIFY_SOCKET).and_then(|address| {
            connect(&address)
                .inspect_err(
                    |error| tracing::warn!(%error, "the service manager cannot be notified"),
                )
                .ok()
        });
        let number = |name| environment.get(name)?.parse::<u64>().ok();
        let is_ours = number(WATCHDOG_PID).is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number(WATCHDOG_USEC).filter(|micros| is_ours && *micros > 0);
        Self { socket, watchdog: watchdog.map(Duration::from_micros) }
    }

    /// Tells that the server answers requests.
    pub(crate) fn ready(&self, url: &str) {
        self.send(&format!("READY=1\nSTATUS=serving at {url}"));
    }

    /// Tells that the server lets running tasks end.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=waiting for running tasks");
    }

    /// Gives a sign of life at half the expected interval, as long as the store answers.
    pub(crate) async fn watch(&self, state: Weak<ServerState>) {
        let Some(interval) = self.watchdog else { return };
        loop {
            let Some(state) = state.upgrade() else { return };
            match state.host.queries().store().last_position().await {
                Ok(_) => self.send("WATCHDOG=1"),
                Err(error) => tracing::error!(%error, "the store does not answer"),
            }
            drop(state);
            tokio::time::sleep(interval / 2).await;
        }
    }

    fn send(&self, message: &str) {
        let Some((socket, address)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            tracing::warn!(%error, "the service manager was not notified");
        }
    }
}

/// A socket and the address of the service manager: a path, or an abstract name after an `@`.
fn connect(address: &str) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match address.strip_prefix('@') {
        #[cfg(target_os = "linux")]
        Some(name) => {
            use std::os::linux::net::SocketAddrExt as _;
            SocketAddr::from_abstract_name(name.as_bytes())?
        }
        _ => SocketAddr::from_pathname(Path::new(std::ffi::OsStr::from_bytes(address.as_bytes())))?,
    };
    let socket = UnixDatagram::unbound()?;
    // A service manager that does not read must not stop the server.
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &'static [(&str, &str)]) -> EnvSource {
        EnvSource::new(move |wanted| {
            variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn sockets_of_another_process_are_not_taken() {
        for (variables, expected) in [
            (&[("LISTEN_PID", "7"), ("LISTEN_FDS", "1")][..], Some(1)),
            (&[("LISTEN_PID", "8"), ("LISTEN_FDS", "1")], None),
            (&[("LISTEN_FDS", "1")], None),
            (&[("LISTEN_PID", "7"), ("LISTEN_FDS", "0")], None),
            (&[("LISTEN_PID", "7"), ("LISTEN_FDS", "x")], None),
            (&[], None),
        ] {
            assert_eq!(passed_sockets(&environment(variables), 7), expected, "{variables:?}");
        }
    }

    #[test]
    fn notifies_over_path_and_abstract_name() {
        let name = format!("polity-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let by_path = UnixDatagram::bind(&path).unwrap();
        let text = path.to_str().unwrap().to_owned();
        let notifier = ServiceNotifier::new(&EnvSource::new(move |wanted| {
            (wanted == NOTIFY_SOCKET).then(|| text.clone())
        }));
        notifier.ready("http://127.0.0.1:1");
        let mut bytes = [0; 100];
        let count = by_path.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"READY=1\nSTATUS=serving at http://127.0.0.1:1");
        std::fs::remove_file(&path).unwrap();
        #[cfg(target_os = "linux")]
        {
            use std::os::linux::net::SocketAddrExt as _;
            let own = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap());
            let notifier = ServiceNotifier::new(&EnvSource::new(move |wanted| {
                (wanted == NOTIFY_SOCKET).then(|| format!("@{name}"))
            }));
            notifier.stopping();
            let count = own.unwrap().recv(&mut bytes).unwrap();
            assert!(bytes[..count].starts_with(b"STOPPING=1"));
        }
    }
}
