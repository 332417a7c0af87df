//! Connections on the loopback port inside, carried to the runtime's unix socket. Bytes only; no protocol is known.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Connections at once. A harness with sub-agents holds a few dozen; beyond this the next one waits its turn.
const CONNECTIONS_MAX: usize = 256;
/// Copying needs one small buffer; the default of 2 MiB per thread would be most of the shim's size.
const STACK_BYTES: usize = 128 * 1024;
/// Pause after a failed accept (descriptors used up): long enough not to spin, short enough not to be noticed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How many connections are open, and a bell for each that ends.
#[derive(Debug, Default)]
struct Seats {
    taken: Mutex<usize>,
    freed: Condvar,
}

/// Holds one place until dropped.
#[derive(Debug)]
struct Seat(Arc<Seats>);

pub(super) fn serve(listener: &TcpListener, socket: &Path) {
    let seats = Arc::new(Seats::default());
    loop {
        let seat = Seats::take(&seats);
        let Ok((inside, _)) = listener.accept() else {
            seats.pause();
            continue;
        };
        // A runtime that is not there, or no thread to be had: the harness sees a closed connection and tries again.
        if let Ok(outside) = UnixStream::connect(socket) {
            let carry = move || {
                relay(&inside, &outside);
                drop(seat);
            };
            let _closed_at_once = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(carry);
        }
    }
}

/// Both directions until each has ended. One may end long before the other: a request is done while its answer
/// streams for minutes.
fn relay(inside: &TcpStream, outside: &UnixStream) {
    let close_both = || {
        let _closed_already = (inside.shutdown(Shutdown::Both), outside.shutdown(Shutdown::Both));
    };
    std::thread::scope(|scope| {
        let upwards = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, || {
            let copied = io::copy(&mut &*inside, &mut &*outside);
            if copied.and_then(|_| outside.shutdown(Shutdown::Write)).is_err() {
                close_both();
            }
        });
        if upwards.is_err() {
            close_both();
        }
        let copied = io::copy(&mut &*outside, &mut &*inside);
        if copied.and_then(|_| inside.shutdown(Shutdown::Write)).is_err() {
            close_both();
        }
    });
}

// === impl Seats ===

impl Seats {
    fn take(this: &Arc<Self>) -> Seat {
        let mut taken = this.taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *taken >= CONNECTIONS_MAX {
            taken = this.freed.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        *taken += 1;
        Seat(Arc::clone(this))
    }

    fn pause(&self) {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.freed.wait_timeout(taken, ACCEPT_PAUSE));
    }
}

// === impl Seat ===

impl Drop for Seat {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A forwarder on a free port, and the listener behind it.
    fn forwarder(folder: &Path) -> (std::net::SocketAddr, UnixListener) {
        let socket = folder.join("runtime.sock");
        let behind = UnixListener::bind(&socket).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(&listener, &socket));
        (address, behind)
    }

    #[test]
    fn an_answer_still_flows_after_the_request_was_closed() {
        let folder = tempfile::tempdir().unwrap();
        let (address, behind) = forwarder(folder.path());
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"question").unwrap();
        client.shutdown(Shutdown::Write).unwrap();

        let (mut served, _) = behind.accept().unwrap();
        let mut question = String::new();
        served.read_to_string(&mut question).unwrap();
        assert_eq!(question, "question");
        served.write_all(b"answer").unwrap();
        drop(served);

        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "answer");
    }

    #[test]
    fn without_a_runtime_the_connection_closes() {
        let folder = tempfile::tempdir().unwrap();
        let (address, behind) = forwarder(folder.path());
        drop(behind);
        let mut client = TcpStream::connect(address).unwrap();
        assert!(matches!(client.read(&mut [0; 8]), Ok(0) | Err(_)));
    }

    #[test]
    fn ended_connections_make_room() {
        let folder = tempfile::tempdir().unwrap();
        let (address, behind) = forwarder(folder.path());
        std::thread::spawn(move || {
            for mut served in behind.incoming().flatten() {
                let _echoed = served.write_all(b"x");
            }
        });
        for round in 0..CONNECTIONS_MAX * 2 {
            let mut byte = [0];
            let mut client = TcpStream::connect(address).unwrap();
            client.read_exact(&mut byte).unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
    }
}
