//! Limits on connections: their number, and how long each may keep the server waiting.
//!
//! When the limit is reached, the connection that has been idle longest is closed. If none is idle,
//! a few more are accepted so that they receive an error or the server's health.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Router, body::Body};
use http_body_util::BodyExt;
use hyper::{
    Request, Response,
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, mpsc, watch},
};

/// Number of connections beyond the limit that are accepted to receive an error.
const CROWD: usize = 32;
/// Files that a process may have open in addition to its connections.
const OTHER_FILES: usize = 64;
/// Time to receive a whole request head. It also closes kept-alive connections that are idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// The same on a connection beyond the limit.
const CROWDED_HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a failure to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Marks a request on a connection beyond the limit.
#[derive(Clone, Copy, Debug)]
pub struct Crowded;

/// All open connections.
struct Connections {
    most: usize,
    began: Instant,
    open: Mutex<BTreeMap<u64, Arc<Connection>>>,
}

/// An open connection.
struct Connection {
    crowded: bool,
    /// Number of requests whose responses have not been sent completely.
    busy: AtomicUsize,
    /// End of the last request, in milliseconds since the server started.
    idle_since: AtomicU64,
    /// Notifies the connection that it must close.
    leave: Notify,
}

/// A place among the connections, released when dropped.
struct ConnectionPermit {
    all: Arc<Connections>,
    number: u64,
    connection: Arc<Connection>,
}

/// A request in progress, until its response has been sent.
struct Busy {
    all: Arc<Connections>,
    connection: Arc<Connection>,
}

/// Maximum number of connections: the requested one, limited by the number of files that the
/// process may open.
pub fn most_connections(requested: usize) -> usize {
    let files = open_files().map_or(usize::MAX, |files| files.saturating_sub(OTHER_FILES + CROWD).max(1));
    if files < requested {
        tracing::warn!(
            "at most {files} connections instead of {requested}: the limit of open files (ulimit -n) is too low"
        );
    }
    requested.min(files)
}

/// The soft limit of open files, from `/proc`, if available.
fn open_files() -> Option<usize> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Serves connections until stopped, then waits for the busy ones.
pub async fn serve(listener: TcpListener, router: Router, most: usize, mut stopping: watch::Receiver<bool>) {
    let all = Arc::new(Connections { most, began: Instant::now(), open: Mutex::default() });
    // Every connection holds a sender, so that the receiver ends with the last of them.
    let (alive, mut gone) = mpsc::channel::<()>(1);
    for number in 0.. {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // An error means that the sender was dropped, which also means stop.
            _ = stopping.wait_for(|stop| *stop) => break,
        };
        let socket = match accepted {
            Ok((socket, _)) => socket,
            Err(error) => {
                all.cannot_accept(&error).await;
                continue;
            }
        };
        // Events of a stream must be sent when they are written, not when the previous one has been
        // acknowledged.
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!("TCP_NODELAY: {error}");
        }
        let Some(place) = all.enter(number) else { continue };
        let (router, stopping, alive) = (router.clone(), stopping.clone(), alive.clone());
        tokio::spawn(async move {
            connection(socket, router, place, stopping).await;
            drop(alive);
        });
    }
    drop((listener, alive));
    gone.recv().await;
}

async fn connection(socket: TcpStream, router: Router, place: ConnectionPermit, mut stopping: watch::Receiver<bool>) {
    let inner = TowerToHyperService::new(router);
    let (all, own) = (place.all.clone(), place.connection.clone());
    let service = service_fn(|mut request: Request<Incoming>| {
        // Counted from the request's head to the last byte of the response.
        let busy = Busy::begin(&all, &own);
        if own.crowded {
            request.extensions_mut().insert(Crowded);
        }
        let answer = inner.call(request);
        async move {
            let response: Response<Body> = answer.await?;
            // The body is dropped once it has been handed over completely for sending.
            let held = move |body: Body| {
                Body::new(body.map_frame(move |frame| {
                    let _ = &busy;
                    frame
                }))
            };
            Ok::<_, Infallible>(response.map(held))
        }
    });
    let mut builder = http1::Builder::new();
    // Extra connections only report that the server is full, and must not stay.
    builder.timer(TokioTimer::new()).keep_alive(!own.crowded);
    builder.header_read_timeout(if own.crowded { CROWDED_HEAD_TIMEOUT } else { HEAD_TIMEOUT });
    let mut served = pin!(builder.serve_connection(TokioIo::new(socket), service));
    let mut stopped = false;
    loop {
        tokio::select! {
            ended = served.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!("a connection ended: {error}");
                }
                break;
            }
            () = own.leave.notified() => {
                if own.is_idle() {
                    break;
                }
            }
            _ = stopping.wait_for(|stop| *stop), if !stopped => {
                stopped = true;
                if own.is_idle() {
                    break;
                }
                served.as_mut().graceful_shutdown();
            }
        }
    }
    drop(place);
}

impl Connections {
    /// A place for a new connection, if necessary that of an idle one; `None` if even the places
    /// for refused connections are taken.
    fn enter(self: &Arc<Self>, number: u64) -> Option<ConnectionPermit> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let crowd = open.values().filter(|one| one.crowded).count();
        let full = open.len() - crowd >= self.most;
        let mut crowded = false;
        if full && !leave(&mut open, false) {
            crowded = true;
            // The connection that has been idle for the longest time makes room for a new one.
            if crowd >= CROWD && !leave(&mut open, true) {
                tracing::debug!("a connection was closed: all {} and {CROWD} extra ones are busy", self.most);
                return None;
            }
        }
        let connection = Arc::new(Connection {
            crowded,
            busy: AtomicUsize::new(0),
            idle_since: AtomicU64::new(self.now()),
            leave: Notify::new(),
        });
        open.insert(number, connection.clone());
        Some(ConnectionPermit { all: self.clone(), number, connection })
    }

    async fn cannot_accept(&self, error: &io::Error) {
        use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
        if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
            return;
        }
        tracing::warn!("no connection can be accepted: {error}");
        // Most likely the process has no file descriptors left, and a closed connection frees one.
        leave(&mut self.open.lock().unwrap_or_else(PoisonError::into_inner), false);
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }
}

/// Closes the connection that has been idle longest, and frees its place at once; returns whether
/// there is one.
fn leave(open: &mut BTreeMap<u64, Arc<Connection>>, crowded: bool) -> bool {
    let idle = open.iter().filter(|(_, one)| one.crowded == crowded && one.is_idle());
    let longest = idle.min_by_key(|(_, one)| one.idle_since.load(Ordering::Relaxed)).map(|(number, _)| *number);
    let left = longest.and_then(|number| open.remove(&number));
    left.inspect(|one| one.leave.notify_one()).is_some()
}

impl Connection {
    fn is_idle(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.all.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

impl Busy {
    fn begin(all: &Arc<Connections>, connection: &Arc<Connection>) -> Self {
        connection.busy.fetch_add(1, Ordering::Relaxed);
        Self { all: all.clone(), connection: connection.clone() }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.connection.idle_since.store(self.all.now(), Ordering::Relaxed);
        self.connection.busy.fetch_sub(1, Ordering::Relaxed);
    }
}
