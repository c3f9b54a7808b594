//! Errors of commands that use a server.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::client::ServerProcess;
use crate::sandbox::{CommandOutput, HomeSandbox, command_output};

/// A secret that must not be sent anywhere else.
const SECRET: &str = "polity_a_token_of_more_than_thirty_two_characters";

fn with_token(args: &[&str], token: &str) -> CommandOutput {
    let elsewhere = HomeSandbox::empty();
    command_output(&elsewhere.command(args).env("POLITY_TOKEN", token).output().unwrap())
}

#[test]
fn refused_token_names_the_variable() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    let url = format!("http://{}", server.address());
    let elsewhere = HomeSandbox::empty();
    let missing = elsewhere.error(1, &["run", "greeter", "x", "--server", &url]);
    assert_eq!(missing.code, "unauthorized");
    assert!(missing.hint.contains("POLITY_TOKEN"), "{missing:?}");
    let wrong = with_token(&["task", "list", "--server", &url, "--json"], SECRET).exits(1).error();
    assert_eq!(wrong.code, "unauthorized");
    let reader = home.polity(&["-q", "token", "create", "reader", "--scope", "read"]).exits(0).out;
    let forbidden = with_token(&["run", "greeter", "x", "--server", &url, "--json"], reader.trim());
    assert_eq!(forbidden.exits(1).error().code, "forbidden");
    with_token(&["task", "list", "--server", &url], reader.trim()).prints("no tasks\n");
    // The local token is found in the home of the server, and only there.
    let root = home.path().to_str().unwrap();
    elsewhere.polity(&["task", "list", "--home", root, "--server", &url]).prints("no tasks\n");
    let other = "http://127.0.0.1:1";
    elsewhere
        .polity(&["task", "list", "--home", root, "--server", other])
        .fails(1, "cannot reach the server at http://127.0.0.1:1");
}

#[test]
fn server_that_does_not_answer_is_named() {
    let elsewhere = HomeSandbox::empty();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let url = format!("http://{address}");
    let error = elsewhere.error(1, &["run", "greeter", "x", "--server", &url]);
    assert_eq!(error.code, "server_unreachable");
    assert!(error.message.contains(&url), "{error:?}");
    assert!(error.hint.contains("polity serve"), "{error:?}");
    for wrong in ["nonsense", "ftp://host", "http://user:secret@host", "http://host/?a=b"] {
        let error = elsewhere.error(2, &["task", "list", "--server", wrong]);
        assert_eq!(error.code, "usage");
        assert!(!error.message.contains("secret"), "{error:?}");
    }
    // A name that never exists: the token would travel unencrypted.
    with_token(&["task", "list", "--server", "http://polity.invalid"], SECRET)
        .fails(1, "the token travels unencrypted to http://polity.invalid");
}

#[test]
fn local_and_remote_exclude_each_other() {
    let home = HomeSandbox::new();
    home.polity(&["task", "list", "--local", "--server", "http://127.0.0.1:1"])
        .fails(2, "cannot be used with");
    // The variable yields to the flag.
    let mut listed = home.command(&["task", "list", "--local"]);
    let listed = listed.env("POLITY_SERVER", "http://127.0.0.1:1").output().unwrap();
    command_output(&listed).prints("no tasks\n");
    for args in [
        &["init", "new"][..],
        &["check"],
        &["backup", "file"],
        &["restore", "file"],
        &["gc"],
        &["serve"],
        &["token", "list"],
        &["tool", "list"],
        &["sim", "status"],
        &["session", "list"],
        &["task", "export", "last", "--out", "out"],
        &["agent", "add", "new", "--executable", "cat"],
        &["run", "greeter", "x", "--record", "file"],
        &["task", "resume", "--all"],
    ] {
        let error = home.error(2, &[args, &["--server", "http://127.0.0.1:1"]].concat());
        assert_eq!(error.code, "unsupported", "{args:?}: {error:?}");
        assert!(!error.hint.is_empty(), "{args:?}");
    }
    assert!(!home.file("new").exists());
    let schema = home.polity(&["schema", "agent", "--server", "http://127.0.0.1:1"]);
    assert!(schema.exits(0).out.contains("$schema"));
}

#[test]
fn redirect_does_not_carry_the_token_away() {
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    target.set_nonblocking(true).unwrap();
    let redirecting = TcpListener::bind("127.0.0.1:0").unwrap();
    let (from, to) = (redirecting.local_addr().unwrap(), target.local_addr().unwrap());
    let answer = std::thread::spawn(move || {
        let (mut stream, _) = redirecting.accept().unwrap();
        let (mut request, mut byte) = (Vec::new(), [0]);
        while !request.ends_with(b"\r\n\r\n") {
            assert_eq!(stream.read(&mut byte).unwrap(), 1);
            request.push(byte[0]);
        }
        let answer = format!(
            "HTTP/1.1 302 Found\r\nLocation: http://{to}/\r\nContent-Length: 0\r\n\
             Connection: close\r\n\r\n"
        );
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(request).unwrap()
    });
    let url = format!("http://{from}");
    let error = with_token(&["task", "list", "--server", &url, "--json"], SECRET).exits(1).error();
    assert_eq!(error.code, "server_error");
    assert!(error.hint.contains("redirects are not followed"), "{error:?}");
    assert!(answer.join().unwrap().contains(SECRET));
    // Nobody connected to the target.
    assert_eq!(target.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}
