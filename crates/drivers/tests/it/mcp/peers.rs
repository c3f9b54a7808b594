//! Third-party servers over every transport and lifecycle.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use polity_definition::McpServerDefinition;
use polity_drivers::process::{ChildProcess, ProcessCommand, ProcessLauncher, StartedProcess};
use polity_testkit::mcp::{environment, server, stdio_server};
use polity_testkit::peers::{npm_server, python_program};
use serde_json::json;

use super::harness::{McpHarness, names};
use crate::waiting::{TEST_TIMEOUT, wait_until};

/// The protocol version of `initialize`.
const INITIALIZE_VERSION: &str = "2025-11-25";

/// The protocol version of `server/discover`.
const DISCOVER_VERSION: &str = "2026-07-28";

fn everything() -> String {
    npm_server("server-everything").to_str().unwrap().to_owned()
}

/// Lists and calls the tools of `server-everything` over any transport.
async fn check_server_everything(definition: McpServerDefinition) {
    let harness = McpHarness::new([definition]);
    let toolbox = harness.toolbox(&["everything/*"]).await.unwrap();
    assert!(names(&toolbox).len() > 10, "{:?}", names(&toolbox));
    assert_eq!(harness.tools.protocol_version("everything").await.unwrap(), INITIALIZE_VERSION);

    let echo = harness.text("everything/echo", json!({"message": "hello"})).await;
    assert_eq!(echo, "Echo: hello");
    let picture = harness.text("everything/get-tiny-image", json!({})).await;
    assert!(picture.contains("[image: image/png, "), "{picture}");
    let weather = json!({"location": "Chicago"});
    let weather = harness.call("everything/get-structured-content", weather).await.unwrap();
    let tool = toolbox.find("everything", "get-structured-content").unwrap();
    assert_eq!(tool.check_result(&weather.structured.unwrap()), Ok(()));
    let wrong = harness.call("everything/echo", json!({"message": 7})).await;
    assert!(wrong.is_ok_and(|reply| reply.is_error), "the server itself checks arguments");

    let many = (0..8).map(|number| {
        let harness = &harness;
        async move { harness.text("everything/get-sum", json!({"a": number, "b": 1})).await }
    });
    for (number, sum) in (0..).zip(futures_util::future::join_all(many).await) {
        assert!(sum.contains(&format!("{}", number + 1)), "{sum}");
    }
    harness.tools.shutdown().await;
}

#[tokio::test]
async fn everything_over_stdio() {
    check_server_everything(stdio_server("everything", "node", &[&everything(), "stdio"])).await;
}

/// The network transports: their name here and for the server, and the path of the URL.
const NETWORK_TRANSPORTS: [(&str, &str, &str); 2] =
    [("sse", "sse", "sse"), ("streamable_http", "streamableHttp", "mcp")];

fn network_server(transport: &str, port: u16, path: &str) -> McpServerDefinition {
    let config = json!({"url": format!("http://127.0.0.1:{port}/{path}")});
    server("everything", transport, &config, &json!({}))
}

#[tokio::test]
async fn everything_over_the_network() {
    for (transport, mode, path) in NETWORK_TRANSPORTS {
        let port = free_port();
        let _server = listening_on(mode, port).await;
        check_server_everything(network_server(transport, port, path)).await;
    }
}

#[tokio::test]
async fn reconnects_to_a_restarted_network_server() {
    for (transport, mode, path) in NETWORK_TRANSPORTS {
        let port = free_port();
        let harness = McpHarness::new([network_server(transport, port, path)]);
        let failure =
            harness.call("everything/echo", json!({"message": "hello"})).await.unwrap_err();
        assert!(!failure.maybe_done, "{failure:?}");
        assert!(failure.failure.message.contains("onnection refused"), "{failure:?}");
        for _ in 0..2 {
            let child = listening_on(mode, port).await;
            let began = std::time::Instant::now();
            // An attempt may be too early, or use the old connection.
            while harness.call("everything/echo", json!({"message": "hello"})).await.is_err() {
                assert!(began.elapsed() < TEST_TIMEOUT, "{transport}");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            drop(child);
            wait_until("it is gone", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err())
                .await;
        }
    }
}

#[tokio::test]
async fn filesystem_server_reads_files_of_the_home() {
    let program = npm_server("server-filesystem");
    let harness =
        McpHarness::new([stdio_server("files", "node", &[program.to_str().unwrap(), "."])]);
    std::fs::write(harness.file("note.txt"), "hello from the home").unwrap();
    let path = harness.file("note.txt").canonicalize().unwrap();
    assert_eq!(
        harness.text("files/read_text_file", json!({"path": path})).await,
        "hello from the home"
    );
    let toolbox = harness.toolbox(&["files/*"]).await.unwrap();
    assert!(toolbox.find("files", "read_text_file").unwrap().repeatable);
    assert!(!toolbox.find("files", "move_file").unwrap().repeatable);
}

#[tokio::test]
async fn time_server_uses_the_newer_lifecycle() {
    let program = python_program("mcp-server-time");
    let harness = McpHarness::new([stdio_server("time", program.to_str().unwrap(), &[])]);
    assert_eq!(harness.tools.protocol_version("time").await.unwrap(), DISCOVER_VERSION);
    let toolbox = harness.toolbox(&["time/get_current_time"]).await.unwrap();
    assert_eq!(names(&toolbox), ["time/get_current_time"]);
    let time = harness.text("time/get_current_time", json!({"timezone": "Europe/Berlin"})).await;
    assert!(time.contains("Europe/Berlin"), "{time}");
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// Starts `server-everything` on a port; dropping the child ends it.
async fn listening_on(mode: &str, port: u16) -> ChildProcess {
    let path = environment("PATH").unwrap();
    let node = std::env::split_paths(&path).map(|folder| folder.join("node"));
    let program = ProcessCommand {
        path: node.into_iter().find(|path| path.is_file()).unwrap(),
        args: vec![everything(), mode.to_owned()],
        env: vec![("PATH".to_owned(), path), ("PORT".to_owned(), port.to_string())],
        folder: PathBuf::from("/"),
    };
    let StartedProcess { child, stdout: mut output, .. } =
        ProcessLauncher::Direct.start_service(&program, Path::new("/")).unwrap();
    tokio::spawn(async move { tokio::io::copy(&mut output, &mut tokio::io::sink()).await });
    wait_until("it listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()).await;
    child
}
