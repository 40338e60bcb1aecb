//! `run --listen`: metrics, health and status of the node over HTTP, beside everything else that `run` does.

use leasehold::Node;
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::settings::{Listen, Problem, Problems, Settings};
use leasehold_core::Config;
use leasehold_http::node::{Metrics, Pages, ROUTES};
use leasehold_http::{Access, Limits, Listener, Token, router, serve};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The pages that this process serves, if it serves any.
pub(super) struct Serving(Option<Server>);

struct Server {
    pages: Pages,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Serving {
    /// Listens, if the settings say so. The pages are there before the node is: until then it is alive and not ready.
    pub(super) async fn start(settings: &Settings) -> Result<Serving, Failure> {
        let Some(listen) = settings.listen() else { return Ok(Serving(None)) };
        let listener = match &listen {
            Listen::Tcp(address) => Listener::tcp(*address).await,
            Listen::Unix(path) => Listener::unix(path).await,
        };
        let listener = listener.map_err(|error| {
            let advice = "stop what listens there, or choose another address";
            Problems(vec![Problem::new(settings.place_of("listen"), error.to_string(), advice)])
        })?;
        let metrics = Metrics::install().map_err(|error| Failure::new(Code::Failed, error.to_string()))?;
        let pages = Pages::new(&metrics);
        let access = Access::new(&listener, settings.text("listen_token").map(Token::new));
        tracing::info!(at = %listener, "serving /metrics, /livez, /readyz and /status");
        let stop = CancellationToken::new();
        let app = router(ROUTES, &pages, access);
        let serving = serve(listener, app, Limits::default(), stop.clone().cancelled_owned());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            tokio::select! {
                () = serving => {}
                () = metrics.upkeep() => {}
            }
        });
        Ok(Serving(Some(Server { pages, stop, tasks })))
    }

    /// The node has started.
    pub(super) fn show(&self, node: &Node, config: &Config) {
        if let Some(server) = &self.0 {
            server.pages.show(node, config.ttl);
        }
    }

    /// Ends it, after the answers that are under way.
    pub(super) async fn end(self) {
        let Some(mut server) = self.0 else { return };
        server.stop.cancel();
        while server.tasks.join_next().await.is_some() {}
    }
}
