//! Every route of the OpenAPI document against the flaws that hit servers like this one. The tests
//! read the table from the server, so that a new route cannot be forgotten.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use serde_json::{Value, json};

use super::client::{HttpAnswer, ServerProcess, parse};
use crate::sandbox::HomeSandbox;

/// Paths that are not in the document.
const OTHER_PATHS: [&str; 5] =
    ["/", "/api/openapi.json", "/healthz", "/nothing", "/.well-known/agent-card.json"];

/// A route as the document describes it.
struct DescribedRoute {
    method: String,
    path: String,
    /// The scope that it needs; none if it needs no token.
    scope: Option<String>,
    takes_body: bool,
    has_query: bool,
}

impl DescribedRoute {
    fn label(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// All routes of a server, with values in place of the parameters.
fn routes(server: &ServerProcess<'_>) -> Vec<DescribedRoute> {
    let document = server.send_with("GET", "/api/openapi.json", "", "").expect(200);
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let is_public = operation["security"] == json!([]);
            let description = operation["description"].as_str().unwrap_or_default();
            let scope = description.split('`').nth(1).map(str::to_owned);
            assert!(is_public || scope.is_some(), "{method} {path} names no scope");
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            all.push(DescribedRoute {
                method: method.to_uppercase(),
                path: path.split('/').map(value_of).collect::<Vec<_>>().join("/"),
                scope: scope.filter(|_| !is_public),
                takes_body: !operation["requestBody"].is_null(),
                has_query: parameters.iter().any(|parameter| parameter["in"] == "query"),
            });
        }
    }
    assert!(all.len() > 20);
    all.push(DescribedRoute {
        method: "GET".to_owned(),
        path: "/metrics".to_owned(),
        scope: Some("read".to_owned()),
        takes_body: false,
        has_query: false,
    });
    all
}

fn value_of(part: &str) -> &str {
    match part.strip_prefix('{') {
        Some(name) if name.ends_with("id}") => "00000000-0000-4000-8000-000000000000",
        Some(_) => "greeter",
        None => part,
    }
}

fn token(home: &HomeSandbox, args: &[&str]) -> String {
    let created = home.get(&[&["token", "create"], args].concat());
    created["token"].as_str().unwrap().to_owned()
}

/// Sends a request from an address of its own, so that no failure slows another one down.
fn send_apart(server: &ServerProcess<'_>, request: &str) -> HttpAnswer {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let [high, low] = NEXT.fetch_add(1, Ordering::SeqCst).to_be_bytes();
    let near = SocketAddrV4::new(Ipv4Addr::new(127, 1, high, low), 0);
    let far: SocketAddrV4 = server.address().parse().unwrap();
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&fd, &near).unwrap();
    connect(&fd, &far).unwrap();
    let mut stream = TcpStream::from(fd);
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    parse(&bytes)
}

/// A request with a body that is announced and never sent. An answer shows that nobody waits for it.
fn without_body(server: &ServerProcess<'_>, route: &DescribedRoute, headers: &str) -> HttpAnswer {
    let DescribedRoute { method, path, .. } = route;
    let length = if method == "GET" { "" } else { "Content-Length: 100000\r\n" };
    let host = server.address();
    let answer = send_apart(
        server,
        &format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
             Content-Type: application/json\r\n{length}{headers}\r\n"
        ),
    );
    assert!(answer.status < 500, "{} {}", route.label(), answer.body);
    answer
}

#[test]
fn unauthenticated_route_is_refused_before_its_body_is_read() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    for route in routes(&server).iter().filter(|route| route.scope.is_some()) {
        for headers in
            ["", "Authorization: Bearer \r\n", "Authorization: Basic eDp5\r\n", "X-Api-Key: \r\n"]
        {
            let answer = without_body(&server, route, headers);
            assert_eq!(answer.status, 401, "{} {headers}", route.label());
            assert_eq!(answer.json()["code"], "unauthorized", "{}", route.label());
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
    }
}

#[test]
fn auth_logic_refuses_wrong_expired_and_revoked_tokens_on_every_route() {
    let home = HomeSandbox::new();
    let expired = token(&home, &["expired", "--scope", "admin", "--expires-days", "30"]);
    let revoked = token(&home, &["revoked", "--scope", "admin"]);
    home.polity(&["token", "revoke", "revoked"]).exits(0);
    let file = home.file("data/tokens.json");
    let mut records: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    records[0]["expires_at"] = json!("2020-01-01T00:00:00Z");
    home.write("data/tokens.json", &records.to_string());
    let server = ServerProcess::start(&home);
    let truncated = &server.token[..server.token.len() - 1];
    for route in routes(&server).iter().filter(|route| route.scope.is_some()) {
        for secret in ["polity_wrong", truncated, &expired, &revoked] {
            let headers = format!("Authorization: Bearer {secret}\r\n");
            let answer = without_body(&server, route, &headers);
            assert_eq!(answer.status, 401, "{}", route.label());
        }
        // Two tokens could be read differently by a proxy.
        let both = format!("Authorization: Bearer {}\r\nX-Api-Key: {expired}\r\n", server.token);
        assert_eq!(without_body(&server, route, &both).status, 401, "{}", route.label());
    }
}

#[test]
fn auth_logic_gives_each_scope_its_own_routes_only() {
    let home = HomeSandbox::new();
    let tokens = ["read", "run", "review"].map(|scope| {
        (scope, format!("X-Api-Key: {}\r\n", token(&home, &[scope, "--scope", scope])))
    });
    let server = ServerProcess::start(&home);
    for route in routes(&server) {
        let Some(needed) = &route.scope else { continue };
        for (scope, headers) in tokens.iter().filter(|(scope, _)| scope != needed) {
            let answer = without_body(&server, &route, headers);
            assert_eq!(answer.status, 403, "{} with {scope}", route.label());
            let problem = answer.json();
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains(&format!("\"{needed}\"")), "{}: {detail}", route.label());
        }
    }
}

#[test]
fn auth_logic_replaces_a_short_local_token() {
    let home = HomeSandbox::new();
    home.polity(&["run", "greeter", "Ada"]).exits(0);
    home.write("data/server.token", "short");
    let server = ServerProcess::start(&home);
    assert!(server.token.len() >= 32);
    let short = server.send_with("GET", "/api/v1/tasks", "X-Api-Key: short\r\n", "");
    short.expect_problem(401, "unauthorized");
}

#[test]
fn token_leaves_by_url_nowhere_because_queries_are_no_place_for_it() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    let secret = server.token.clone();
    for mut route in routes(&server).into_iter().filter(|route| route.scope.is_some()) {
        route.path = format!("{}?token={secret}&access_token={secret}", route.path);
        assert_eq!(without_body(&server, &route, "").status, 401, "{}", route.label());
    }
}

#[test]
fn dns_rebinding_is_refused_on_every_route() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    let address = server.address();
    let token = &server.token;
    let all = routes(&server);
    let all = all.iter().map(|route| (route.method.as_str(), route.path.as_str()));
    for (method, path) in all.chain(OTHER_PATHS.map(|path| ("GET", path))) {
        let send = |target: &str, hosts: &str, expected: u16| {
            let answer = server.send_raw(&format!(
                "{method} {target} HTTP/1.1\r\n{hosts}Connection: close\r\n\
                 Authorization: Bearer {token}\r\n\r\n"
            ));
            assert_eq!(answer.status, expected, "{method} {target} {hosts}: {}", answer.body);
        };
        send(path, "Host: evil.example\r\n", 421);
        send(path, "Host: localhost.evil.example\r\nX-Forwarded-Host: localhost\r\n", 421);
        send(path, "Host: [::1].evil.example\r\n", 421);
        send(path, "Host: 127.0.0.1:7070.evil.example\r\n", 421);
        send(&format!("http://evil.example{path}"), &format!("Host: {address}\r\n"), 421);
        send(path, "Host: localhost\r\nHost: evil.example\r\n", 400);
    }
    for host in [address, "localhost", "[::1]:7070", "127.0.0.1"] {
        let headers = "X-Forwarded-Host: evil.example\r\n";
        let request =
            format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n");
        server.send_raw(&request).expect(200);
    }
}

#[test]
fn cors_and_cross_origin_requests_are_refused_on_every_route() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    let all = routes(&server);
    let all = all.iter().map(|route| (route.method.as_str(), route.path.as_str()));
    for (method, path) in all.chain(OTHER_PATHS.map(|path| ("GET", path))) {
        for headers in [
            "Origin: http://evil.example\r\n",
            "Origin: null\r\n",
            "Origin: http://localhost:9\r\n",
            "Sec-Fetch-Site: cross-site\r\n",
            "Sec-Fetch-Site: same-site\r\n",
            "Origin: http://evil.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
        ] {
            let answer = server.send(method, path, headers, "");
            assert_eq!(answer.status, 403, "{method} {path} {headers}: {}", answer.body);
            assert_eq!(answer.header("access-control-allow-origin"), None, "{method} {path}");
        }
        let asked = "Access-Control-Request-Method: POST\r\nOrigin: http://evil.example\r\n";
        let preflight = server.send_with("OPTIONS", path, asked, "");
        assert_eq!(preflight.status, 403, "{path}");
        assert_eq!(preflight.header("access-control-allow-origin"), None, "{path}");
        assert_eq!(preflight.header("set-cookie"), None, "{path}");
    }
}

#[test]
fn csrf_by_simple_request_and_content_type_confusion_are_refused() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    for route in routes(&server).iter().filter(|route| route.takes_body) {
        for headers in [
            "",
            "Content-Type: text/plain\r\n",
            "Content-Type: application/x-www-form-urlencoded\r\n",
            "Content-Type: multipart/form-data; boundary=x\r\n",
            "Content-Type: application/jsonx\r\n",
            "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
            "Content-Type: application/json\r\nContent-Encoding: br\r\n",
        ] {
            let answer = server.send(&route.method, &route.path, headers, "{}");
            assert_eq!(answer.status, 415, "{} {headers}: {}", route.label(), answer.body);
        }
    }
    assert_eq!(home.tasks().len(), 0);
}

#[test]
fn stored_state_is_reached_by_known_fields_and_filters_only() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    for route in routes(&server) {
        if route.takes_body {
            for (body, allowed) in [
                ("{", &[400][..]),
                ("{}{}", &[400, 422]),
                ("\u{1}", &[400]),
                ("[]", &[422]),
                ("\"text\"", &[422]),
                (r#"{"__proto__": 1}"#, &[422]),
                (r#"{"no_such_field": {"a": [1]}}"#, &[422]),
            ] {
                let kind = "Content-Type: application/json\r\n";
                let answer = server.send(&route.method, &route.path, kind, body);
                let (label, status) = (route.label(), answer.status);
                assert!(allowed.contains(&status), "{label} {body}: {status} {}", answer.body);
                let media_type = answer.header("content-type");
                assert_eq!(media_type, Some("application/problem+json"), "{label} {body}");
            }
        }
        if route.has_query {
            let path = format!("{}?1%3D1;--=x", route.path);
            let kind = "Content-Type: application/json\r\n";
            let answer = server.send(&route.method, &path, kind, "{}");
            assert_eq!(answer.status, 422, "{}: {}", route.label(), answer.body);
        }
    }
    assert_eq!(home.tasks().len(), 0);
}

#[test]
fn resource_limits_hold_for_the_body_of_every_route() {
    let home = HomeSandbox::new();
    home.write("polity.yaml", "limits: {input_bytes: 1000}\n");
    let server = ServerProcess::start(&home);
    let huge = format!("{{\"x\": \"{}\"}}", "x".repeat(2000 + (1 << 20)));
    for route in routes(&server).iter().filter(|route| route.takes_body) {
        let kind = "Content-Type: application/json\r\n";
        let answer = server.send(&route.method, &route.path, kind, &huge);
        assert_eq!(answer.status, 413, "{}: {}", route.label(), answer.body);
        assert_eq!(answer.json()["code"], "body_too_large", "{}", route.label());
    }
}

#[test]
fn resource_silent_connection_is_closed() {
    let home = HomeSandbox::new();
    let server = ServerProcess::start(&home);
    let open = |beginning: &str| {
        let mut stream = server.connect();
        stream.write_all(beginning.as_bytes()).unwrap();
        stream
    };
    // They wait at the same time.
    let streams = ["", "P", "PRI * HTTP/2.0\r\n", "GET / HTTP/1.1\r\n"].map(open);
    for mut stream in streams {
        let mut rest = Vec::new();
        // The end comes from the server, with or without a reset.
        let ended = stream.read_to_end(&mut rest);
        let is_timeout = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        assert!(!ended.as_ref().is_err_and(is_timeout), "{ended:?}");
    }
}
