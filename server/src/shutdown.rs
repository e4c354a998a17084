//! Graceful shutdown: new requests are refused, running ones may finish, and a time limit ends open
//! streams.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    net::TcpListener,
    sync::{
        mpsc::{Receiver, channel},
        watch,
    },
};

use crate::{api::routes::router, http::connections, state::State};

/// Time to send responses after the engine has ended their requests.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Serves until a signal, or until the engine fails. A second signal ends the grace period of the
/// first.
pub async fn run(listener: TcpListener, state: Arc<State>, mut signals: Receiver<()>) -> io::Result<()> {
    let (stop, stopping) = watch::channel(false);
    let most = connections::most_connections(state.options.max_connections);
    let serving = tokio::spawn(connections::serve(listener, router(state.clone()), most, stopping));
    tokio::select! {
        _ = signals.recv() => {}
        () = state.worker.gone() => {}
    }
    state.stop();
    // A second send has no effect, since the value is the same.
    let _ = stop.send(true);
    let idle = async {
        while state.worker.is_alive() && state.worker.is_busy() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let cut = tokio::select! {
        () = idle => None,
        () = tokio::time::sleep(state.options.shutdown_grace) => Some("the grace period is over"),
        _ = signals.recv() => Some("a second signal arrived"),
    };
    if let Some(reason) = cut {
        tracing::warn!("{reason}: requests that were still running were cut off");
        state.worker.cut_off();
    }
    // A client that does not read its stream does not keep the process alive.
    match tokio::time::timeout(LAST_WORDS, serving).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(panicked)) => Err(io::Error::other(panicked)),
        Err(_) => Ok(()),
    }
}

/// Receives one message for each SIGINT, SIGTERM and SIGHUP.
///
/// # Errors
/// When a handler cannot be installed.
#[cfg(unix)]
pub fn signals() -> io::Result<Receiver<()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (sender, receiver) = channel(2);
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    // The terminal was closed.
    let mut hang_up = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        loop {
            let signal = tokio::select! {
                signal = interrupt.recv() => signal,
                signal = terminate.recv() => signal,
                signal = hang_up.recv() => signal,
            };
            if signal.is_none() || sender.send(()).await.is_err() {
                break;
            }
        }
    });
    Ok(receiver)
}

/// Receives one message for each Ctrl-C.
///
/// # Errors
/// Never.
#[cfg(not(unix))]
pub fn signals() -> io::Result<Receiver<()>> {
    let (sender, receiver) = channel(2);
    tokio::spawn(async move { while tokio::signal::ctrl_c().await.is_ok() && sender.send(()).await.is_ok() {} });
    Ok(receiver)
}
