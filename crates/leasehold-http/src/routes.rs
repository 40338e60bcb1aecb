//! A set of pages as a table: the router, the documentation and the tests go by the same one.

use axum::Router;
use axum::extract::{Extension, Request};
use axum::middleware;
use axum::response::Response;
use axum::routing::get;

use crate::access::{self, Access, Caller};
use crate::problem::Kind;

/// One page.
pub struct Route<S> {
    /// Its path.
    pub path: &'static str,
    /// Who may read it where a token is set.
    pub reader: Reader,
    /// What it shows, in a few words.
    pub shows: &'static str,
    /// Makes the answer to a request with this query.
    pub answer: fn(&S, query: &str, caller: Caller) -> Response,
}

/// Who may read a page where a token is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Whoever has the token.
    WithToken,
    /// Everybody. The page shows strangers nothing but a verdict.
    Anyone,
}

/// A router of these pages. Every request is checked, also one for a page that does not exist.
pub fn router<S: Clone + Send + Sync + 'static>(
    routes: &'static [Route<S>],
    state: &S,
    access: Access,
) -> Router {
    let mut router = Router::new();
    for route in routes {
        let state = state.clone();
        let answer = move |Extension(caller): Extension<Caller>, request: Request| {
            std::future::ready(if caller == Caller::Stranger && route.reader == Reader::WithToken {
                Kind::Unauthorized.with("this page needs the token")
            } else {
                (route.answer)(&state, request.uri().query().unwrap_or_default(), caller)
            })
        };
        router = router.route(route.path, get(answer));
    }
    router
        .fallback(|| std::future::ready(Kind::UnknownPage.with("there is no such page")))
        .method_not_allowed_fallback(|| std::future::ready(Kind::WrongMethod.with("this page is read-only")))
        .layer(middleware::from_fn_with_state(access, access::check))
}
