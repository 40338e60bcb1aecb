//! The server over real sockets.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::{Access, BindError, Limits, Listener, Reader, Route, Token, router, serve};

const ROUTES: &[Route<()>] = &[
    Route {
        path: "/open",
        reader: Reader::Anyone,
        shows: "",
        answer: |_, query, caller| format!("{query} {caller:?}").into_response(),
    },
    Route {
        path: "/closed",
        reader: Reader::WithToken,
        shows: "",
        answer: |_, _, _| "secret".into_response(),
    },
];

/// A server that ends when its sender is dropped or used.
struct Server {
    at: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

#[allow(clippy::disallowed_methods, reason = "the test awaits it")]
async fn server(limits: Limits, token: Option<Token>) -> Server {
    let listener = Listener::tcp(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let at = listener.address().unwrap();
    let app: Router = router(ROUTES, &(), Access::new(&listener, token));
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(serve(listener, app, limits, async move { drop(stopped.await) }));
    Server { at, stop, task }
}

/// Sends bytes, and reads until the server closes the connection.
async fn send(at: SocketAddr, bytes: &str) -> String {
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    read(&mut stream).await
}

async fn read(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut answer = Vec::new();
    // A server that closes before it has read everything resets the connection; what it said arrives all the same.
    let _ = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut answer))
        .await
        .expect("the server closes");
    String::from_utf8(answer).unwrap()
}

fn get(path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n")
}

#[tokio::test]
async fn pages_are_served_and_everything_else_is_a_problem_with_advice() {
    let server = server(Limits::default(), None).await;
    let open = send(server.at, &get("/open?share=1", "")).await;
    assert!(open.starts_with("HTTP/1.1 200 OK\r\n") && open.ends_with("share=1 Known"), "{open}");
    assert!(open.contains("cache-control: no-store") && open.contains("nosniff"), "{open}");
    assert!(send(server.at, &get("/closed", "")).await.ends_with("secret"));
    for (request, status, word) in [
        (get("/none", ""), "404", "unknown-page"),
        (get("/open", "").replacen("GET", "POST", 1), "405", "wrong-method"),
        (get("/open", "").replace("localhost", "evil.example"), "421", "host-not-allowed"),
        (get("/none", "").replace("localhost", "evil.example"), "421", "host-not-allowed"),
        (get("/open", "Origin: http://evil.example\r\n"), "403", "forbidden"),
        (get("/open", "Content-Length: 70000\r\n"), "413", "too-large"),
    ] {
        let answer = send(server.at, &request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}\n{answer}");
        assert!(answer.contains(&format!("/problems/{word}")) && answer.contains("advice"), "{answer}");
        assert!(answer.contains("application/problem+json") && answer.contains("no-store"), "{answer}");
    }
    server.stop.send(()).unwrap();
    server.task.await.unwrap();
    assert!(TcpStream::connect(server.at).await.is_err(), "nothing listens any more");
}

#[tokio::test]
async fn with_a_token_strangers_see_only_what_is_for_everyone() {
    let server = server(Limits::default(), Some(Token::new("0123456789abcdef"))).await;
    assert!(send(server.at, &get("/open", "")).await.ends_with(" Stranger"));
    let refused = send(server.at, &get("/closed", "")).await;
    assert!(refused.starts_with("HTTP/1.1 401") && refused.contains("www-authenticate: Bearer"), "{refused}");
    let wrong = send(server.at, &get("/open", "Authorization: Bearer nonsense\r\n")).await;
    assert!(wrong.starts_with("HTTP/1.1 401"), "{wrong}");
    let known = get("/closed", "Authorization: Bearer 0123456789abcdef\r\n");
    assert!(send(server.at, &known).await.ends_with("secret"));
}

#[tokio::test]
async fn requests_that_are_too_slow_or_too_large_are_cut_off() {
    let limits = Limits { header_within: Duration::from_millis(200), ..Limits::default() };
    let server = server(limits, None).await;
    // It never ends its headers; the server ends the connection.
    let slow = send(server.at, "GET /open HTTP/1.1\r\nHost: localhost\r\n").await;
    assert!(!slow.contains("200 OK"), "{slow}");
    let large = send(server.at, &get("/open", &format!("X: {}\r\n", "x".repeat(40_000)))).await;
    assert!(large.is_empty() || large.starts_with("HTTP/1.1 431"), "{large}");
    let many: String = (0..200).map(|n| format!("X-{n}: 1\r\n")).collect();
    let many = send(server.at, &get("/open", &many)).await;
    assert!(many.is_empty() || many.starts_with("HTTP/1.1 431"), "{many}");
    assert!(send(server.at, &get("/open", "")).await.contains("200 OK"), "others are still served");
}

#[tokio::test]
async fn connections_above_the_limit_are_told_so_and_later_ones_served() {
    let server = server(Limits { connections_max: 2, ..Limits::default() }, None).await;
    let mut idle = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(server.at).await.unwrap();
        stream.write_all(b"GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        idle.push(stream);
    }
    let mut third = TcpStream::connect(server.at).await.unwrap();
    let refused = read(&mut third).await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("too-many"), "{refused}");
    drop(idle);
    let mut served = false;
    for _ in 0..500 {
        served = served || send(server.at, &get("/open", "")).await.contains("200 OK");
        tokio::task::yield_now().await;
    }
    assert!(served, "connections that ended make room");
}

#[tokio::test]
async fn idle_connections_do_not_hold_up_the_end() {
    let server = server(Limits::default(), None).await;
    let mut idle = TcpStream::connect(server.at).await.unwrap();
    idle.write_all(b"GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).await.unwrap();
    server.stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(20), server.task).await.expect("it ends").unwrap();
    read(&mut idle).await;
}

#[tokio::test]
async fn a_unix_socket_is_for_its_user_and_replaces_only_a_dead_one() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("node.sock");
    let listener = Listener::unix(&path).await.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(listener.to_string(), format!("unix:{}", path.display()));
    assert!(matches!(Listener::unix(&path).await, Err(BindError::InUse(_))));

    let (stop, stopped) = oneshot::channel::<()>();
    let app = router(ROUTES, &(), Access::new(&listener, None));
    let served = serve(listener, app, Limits::default(), async move { drop(stopped.await) });
    let asked = async {
        let mut stream = UnixStream::connect(&path).await.unwrap();
        stream.write_all(get("/open", "").replace("localhost", "any.name").as_bytes()).await.unwrap();
        let answer = read(&mut stream).await;
        drop(stop);
        answer
    };
    let ((), answer) = tokio::join!(served, asked);
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(!path.exists(), "the file goes with the listener");

    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a dead process leaves its socket behind");
    drop(Listener::unix(&path).await.expect("a dead socket is replaced"));
    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(Listener::unix(&path).await, Err(BindError::NoSocket(_))));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
