//! Ending well: nothing new is taken, what runs may finish, and an open stream cannot hold the process for ever.

use std::{io, sync::Arc, time::Duration};

use tokio::{net::TcpListener, sync::watch};

use super::{routes::router, state::State};

/// Time for answers to leave once the engine has ended their requests.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Serves until `signal`, or until the engine fails.
pub async fn run(listener: TcpListener, state: Arc<State>, signal: impl Future<Output = ()>) -> io::Result<()> {
    let (stop, mut stopping) = watch::channel(false);
    let stopped = async move {
        // An error would mean that the sender is gone, which also means stop.
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    let serving =
        tokio::spawn(axum::serve(listener, router(state.clone())).with_graceful_shutdown(stopped).into_future());
    let failed = async {
        while state.worker.is_alive() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        () = signal => {}
        () = failed => {}
    }
    state.stop();
    // A second send finds the same value: there is only one stop.
    let _ = stop.send(true);
    let idle = async {
        while state.worker.is_alive() && state.worker.is_busy() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(state.options.shutdown_grace, idle).await.is_err() {
        tracing::warn!("requests still ran at the end of the grace period and were cut off");
        state.worker.cancel_all();
    }
    // A client that does not read its stream does not keep the process alive.
    match tokio::time::timeout(LAST_WORDS, serving).await {
        Ok(Ok(ended)) => ended,
        Ok(Err(panicked)) => Err(io::Error::other(panicked)),
        Err(_) => Ok(()),
    }
}

/// SIGINT or SIGTERM.
pub async fn signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
            (Ok(mut interrupt), Ok(mut terminate)) => {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            }
            // Without signals only the engine's failure ends the server.
            _ => std::future::pending().await,
        }
    }
    #[cfg(not(unix))]
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
