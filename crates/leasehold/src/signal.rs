//! Waits for the signal to shut down.

/// Completes at the first SIGTERM (as `kill`, systemd and Kubernetes send it) or SIGINT (Ctrl-C); on Windows, at Ctrl-C.
///
/// The signals are caught from the call on, not from the first poll: a signal that comes while the node starts is not
/// lost if this was called before. From then on they no longer end the process by themselves. Must be called inside a
/// tokio runtime with I/O.
///
/// ```no_run
/// # async fn example(node: leasehold::Node) {
/// node.leave_on(leasehold::shutdown_signal()).await;
/// # }
/// ```
pub fn shutdown_signal() -> impl Future<Output = ()> + Send {
    let signals = Signals::catch();
    async move {
        match signals {
            Ok(signals) => signals.next().await,
            Err(error) => {
                tracing::error!(%error, "cannot catch signals: a signal ends the process without a handover");
                std::future::pending().await
            }
        }
    }
}

#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn catch() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(windows)]
struct Signals(tokio::signal::windows::CtrlC);

#[cfg(windows)]
impl Signals {
    fn catch() -> std::io::Result<Self> {
        tokio::signal::windows::ctrl_c().map(Signals)
    }

    async fn next(mut self) {
        self.0.recv().await;
    }
}
