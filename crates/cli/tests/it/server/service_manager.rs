//! Starting a server as a service manager does: with a listening socket and an address for messages.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::client::ServerProcess;
use crate::sandbox::HomeSandbox;

/// Listens on a free port, passes the socket as descriptor 3, and becomes the server.
const ACTIVATE: &str = r#"
import os, socket, sys
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(16)
with open("port", "w") as file:
    file.write(str(listener.getsockname()[1]))
if listener.fileno() != 3:
    os.dup2(listener.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.argv[1], sys.argv[1:])
"#;

/// A command that starts the server with the socket.
fn activated(home: &HomeSandbox) -> Command {
    let server = home.command(&["serve"]);
    let mut command = Command::new("python3");
    command.current_dir(home.path()).env_remove("POLITY_HOME");
    command.args(["-c", ACTIVATE]).arg(server.get_program()).args(server.get_args());
    command
}

#[test]
fn server_takes_the_passed_socket_and_reports_its_state() {
    let home = HomeSandbox::new();
    let manager = UnixDatagram::bind(home.file("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_mins(2))).unwrap();
    let mut command = activated(&home);
    command.env("NOTIFY_SOCKET", home.file("notify")).env("WATCHDOG_USEC", "200000");
    let server = ServerProcess::start_command(&home, command);
    let port = std::fs::read_to_string(home.file("port")).unwrap();
    assert_eq!(server.address(), format!("127.0.0.1:{port}"));
    server.get("/api/v1/agents").expect(200);
    let next = || {
        let mut bytes = [0; 1000];
        let count = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    let mut messages = vec![next(), next(), next()];
    assert!(messages.iter().any(|one| one.starts_with("READY=1\n")), "{messages:?}");
    assert!(messages.iter().any(|one| one == "WATCHDOG=1"), "{messages:?}");
    server.stop().exits(0);
    while !messages.last().unwrap().starts_with("STOPPING=1") {
        messages.push(next());
    }
}

#[test]
fn announced_socket_that_is_not_there_is_refused() {
    let home = HomeSandbox::new();
    // The shell keeps its process id when it becomes the server, and closes the descriptor. The
    // server may open another file with this number, which must not be taken.
    let polity = home.command(&[]);
    let mut command = Command::new("sh");
    command.current_dir(home.path()).env_remove("POLITY_HOME").arg("-c");
    command.arg("exec 3<&-; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" serve");
    let output = command.arg(polity.get_program()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("descriptor 3 is not ") && error.contains("hint"), "{error}");
}

/// The folder with the files for operators.
fn deploy() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy"))
}

#[test]
fn units_of_systemd_are_valid() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("skipped: there is no systemd-analyze");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["polity.service", "polity.socket"] {
        let unit = std::fs::read_to_string(deploy().join(name)).unwrap();
        let unit = unit.replace("/usr/local/bin/polity", env!("CARGO_BIN_EXE_polity"));
        std::fs::write(folder.path().join(name), unit).unwrap();
    }
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]);
    verify.args(["polity.service", "polity.socket"].map(|name| folder.path().join(name)));
    let output = verify.output().unwrap();
    let found = String::from_utf8_lossy(&output.stderr);
    // Other units of the machine are none of our business.
    let ours: Vec<&str> = found.lines().filter(|line| line.contains("polity")).collect();
    assert!(ours.is_empty(), "{ours:?}");
}
