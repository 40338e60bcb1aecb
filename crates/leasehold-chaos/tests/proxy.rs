//! The proxy's modes, seen from a client and an upstream on loopback.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use leasehold_chaos::proxy::{Direction, Existing, Mode, Proxy};

/// Long enough for anything on loopback, short enough to wait for in vain.
const A_WHILE: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(10);

/// Answers every byte with the same byte, until the test ends. Every connection begins with this server's greeting.
fn echo(greeting: u8) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::Builder::new()
        .spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::Builder::new()
                    .spawn(move || {
                        let _ = stream.write_all(&[greeting]);
                        let mut buffer = [0; 4096];
                        while let Ok(count @ 1..) = stream.read(&mut buffer) {
                            let _ = stream.write_all(&buffer[..count]);
                        }
                    })
                    .unwrap();
            }
        })
        .unwrap();
    address
}

fn proxy() -> Proxy {
    Proxy::start([echo(b'!').to_string()]).unwrap()
}

fn connect(proxy: &Proxy) -> TcpStream {
    connect_to(proxy.address(0))
}

fn connect_to(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

fn greeted(proxy: &Proxy) -> TcpStream {
    let mut stream = connect(proxy);
    assert_eq!(next(&mut stream), b'!');
    stream
}

fn next(stream: &mut TcpStream) -> u8 {
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    byte[0]
}

fn hears_nothing(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(A_WHILE)).unwrap();
    let error = stream.read(&mut [0]).expect_err("nothing comes");
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    stream.set_read_timeout(Some(LONG)).unwrap();
}

fn is_reset(stream: &mut TcpStream) {
    let error = stream.read(&mut [0]).expect_err("a reset is not an orderly end");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[allow(clippy::disallowed_methods, reason = "a test of how late bytes are")]
fn took(what: impl FnOnce()) -> Duration {
    let began = std::time::Instant::now();
    what();
    began.elapsed()
}

#[test]
fn everything_passes_both_ways_and_in_order_up_to_the_end() {
    let proxy = proxy();
    let mut stream = greeted(&proxy);
    let sent: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let mut writer = stream.try_clone().unwrap();
    let bytes = sent.clone();
    let writing = std::thread::Builder::new()
        .spawn(move || {
            writer.write_all(&bytes).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        })
        .unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    writing.join().unwrap();
    assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
}

#[test]
fn a_delay_counts_for_each_way_and_holds_back_no_later_bytes() {
    let proxy = proxy();
    let mut stream = greeted(&proxy);
    proxy
        .set(Mode::Delay { to_store: Duration::from_millis(200), from_store: Duration::from_millis(300) })
        .unwrap();
    let round_trip = took(|| {
        stream.write_all(b"a").unwrap();
        assert_eq!(next(&mut stream), b'a');
    });
    assert!(round_trip >= Duration::from_millis(500), "{round_trip:?}");
    let ten = took(|| {
        for byte in 0..10u8 {
            stream.write_all(&[byte]).unwrap();
            std::thread::sleep(Duration::from_millis(10));
        }
        (0..10u8).for_each(|byte| assert_eq!(next(&mut stream), byte));
    });
    assert!(ten < Duration::from_millis(4_000), "one after the other would take 5 s: {ten:?}");
}

#[test]
fn a_stall_accepts_and_answers_nothing_and_what_was_frozen_goes_on() {
    let proxy = proxy();
    let mut old = greeted(&proxy);
    proxy.set(Mode::Stall).unwrap();
    let mut new = connect(&proxy);
    old.write_all(b"x").unwrap();
    hears_nothing(&mut old);
    hears_nothing(&mut new);
    proxy.set(Mode::Pass).unwrap();
    assert_eq!(next(&mut old), b'x');
    assert_eq!(next(&mut new), b'!');
}

#[test]
fn a_stalled_writer_is_held_up_as_by_a_full_network() {
    let proxy = proxy();
    let mut stream = greeted(&proxy);
    proxy.set(Mode::Stall).unwrap();
    stream.set_write_timeout(Some(A_WHILE)).unwrap();
    let error = stream.write_all(&vec![0; 64 * 1024 * 1024]).expect_err("64 MiB fit nowhere");
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
}

#[test]
fn a_silent_cut_refuses_new_connections_and_forgets_the_old_ones() {
    let proxy = proxy();
    let mut old = greeted(&proxy);
    proxy.set(Mode::Cut(Existing::Silent)).unwrap();
    assert_eq!(TcpStream::connect(proxy.address(0)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    old.write_all(b"x").unwrap();
    hears_nothing(&mut old);
    proxy.set(Mode::Pass).unwrap();
    hears_nothing(&mut old);
    greeted(&proxy);
}

#[test]
fn a_cut_with_reset_tells_the_old_connections() {
    let proxy = proxy();
    let mut old = greeted(&proxy);
    proxy.set(Mode::Cut(Existing::Reset)).unwrap();
    is_reset(&mut old);
    assert_eq!(TcpStream::connect(proxy.address(0)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    proxy.set(Mode::Pass).unwrap();
    greeted(&proxy);
}

#[test]
fn a_reset_ends_old_and_new_connections() {
    let proxy = proxy();
    let mut old = greeted(&proxy);
    proxy.set(Mode::Reset).unwrap();
    is_reset(&mut old);
    is_reset(&mut connect(&proxy));
    proxy.set(Mode::Pass).unwrap();
    greeted(&proxy);
}

#[test]
fn requests_that_are_lost_arrive_when_the_loss_ends() {
    let proxy = proxy();
    let mut old = greeted(&proxy);
    proxy.set(Mode::OneWay { lost: Direction::ToStore }).unwrap();
    old.write_all(b"x").unwrap();
    hears_nothing(&mut old);
    proxy.set(Mode::Pass).unwrap();
    assert_eq!(next(&mut old), b'x');
}

#[test]
fn answers_that_are_lost_were_still_asked_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start([listener.local_addr().unwrap().to_string()]).unwrap();
    let mut node = connect(&proxy);
    let (mut store, _) = listener.accept().unwrap();
    proxy.set(Mode::OneWay { lost: Direction::FromStore }).unwrap();
    node.write_all(b"q").unwrap();
    assert_eq!(next(&mut store), b'q', "the request arrives");
    store.write_all(b"a").unwrap();
    hears_nothing(&mut node);
    proxy.set(Mode::Pass).unwrap();
    assert_eq!(next(&mut node), b'a', "the answer comes very late");
}

#[test]
fn each_upstream_has_its_own_gate_and_mode() {
    let proxy = Proxy::start([echo(b'1').to_string(), echo(b'2').to_string()]).unwrap();
    let addresses = proxy.addresses();
    assert_eq!(addresses.len(), 2);
    proxy.set_one(0, Mode::Cut(Existing::Silent)).unwrap();
    assert!(TcpStream::connect(addresses[0]).is_err());
    assert_eq!(next(&mut connect_to(addresses[1])), b'2');
    proxy.set(Mode::Pass).unwrap();
    assert_eq!(next(&mut connect_to(addresses[0])), b'1');
}

#[test]
fn an_upstream_that_is_not_there_resets_its_clients() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = Proxy::start([gone.to_string()]).unwrap();
    is_reset(&mut connect(&proxy));
}

#[test]
fn it_ends_with_its_owner_whatever_the_mode() {
    for mode in [Mode::Pass, Mode::Stall, Mode::Cut(Existing::Silent), Mode::Reset] {
        let proxy = proxy();
        let mut stream = greeted(&proxy);
        proxy.set(mode).unwrap();
        let address = proxy.address(0);
        let ending = took(|| drop(proxy));
        assert!(ending < Duration::from_secs(5), "{mode:?}: {ending:?}");
        assert!(TcpStream::connect(address).is_err(), "{mode:?}");
        is_reset(&mut stream);
    }
}

#[tokio::test]
async fn it_can_be_used_from_async_code() {
    let proxy = proxy();
    let mut stream = greeted(&proxy);
    proxy.set(Mode::Reset).unwrap();
    is_reset(&mut stream);
}

#[test]
fn nothing_passes_once_a_change_was_made() {
    let proxy = proxy();
    for round in 0..50 {
        proxy.set(Mode::Pass).unwrap();
        let mut stream = greeted(&proxy);
        proxy.set(Mode::Stall).unwrap();
        stream.write_all(b"x").unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        assert!(stream.read(&mut [0]).is_err(), "round {round}");
    }
}
