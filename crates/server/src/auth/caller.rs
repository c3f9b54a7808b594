//! The caller of a request: finds its token and checks its scope before the body is read.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use polity_engine::clock::{Clock, SystemClock};
use polity_model::name::Name;

use super::throttle::Admission;
use super::token::Scope;
use super::token_set::{LOCAL_GRANT, TokenGrant};
use crate::http::Problem;
use crate::state::ServerState;

/// The header of a token for clients that cannot send `Authorization`.
const API_KEY_HEADER: &str = "x-api-key";

/// The id of a request's token, for the log.
#[derive(Debug, Clone)]
pub(crate) struct RequestToken(pub(crate) Arc<str>);

/// An authenticated caller.
#[derive(Debug, Clone)]
pub(crate) struct ApiCaller {
    pub(crate) grant: Arc<TokenGrant>,
}

impl ApiCaller {
    /// The name under which actions of the caller are recorded.
    pub(crate) fn name(&self) -> String {
        format!("token {}", self.grant.name)
    }

    /// True for the token in the data folder, which only the user of this machine can read.
    pub(crate) fn is_local(&self) -> bool {
        &*self.grant.id == LOCAL_GRANT
    }

    /// Refuses a caller who may not use an agent or workflow. The answer does not reveal that it
    /// exists.
    pub(crate) fn expect_agent(&self, name: &Name) -> Result<(), Problem> {
        if self.grant.may_use(name) {
            return Ok(());
        }
        Err(Problem::forbidden(format!("this token may not use \"{name}\""))
            .hint("use a token without a list of agents, or one that lists it"))
    }
}

impl ApiCaller {
    /// Refuses a caller who is limited to some agents.
    pub(crate) fn expect_unlimited(&self, subject: &str) -> Result<(), Problem> {
        match self.grant.agents() {
            None => Ok(()),
            Some(_) => Err(Problem::forbidden(format!(
                "this token is limited to some agents, and {subject} are not"
            ))
            .hint("use a token without a list of agents")),
        }
    }
}

/// The middleware of one route: finds the caller and checks the scope.
pub(crate) async fn authenticate(
    State((state, scope)): State<(Arc<ServerState>, Scope)>,
    mut request: Request,
    next: Next,
) -> Response {
    let address = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    if let Some(address) = address {
        match state.throttle.admit(address) {
            Admission::Free => {}
            Admission::Delayed(delay) => tokio::time::sleep(delay).await,
            Admission::Blocked(rest) => return Problem::blocked(rest).into_response(),
        }
    }
    let secret = match secret_of(request.headers()) {
        Ok(secret) => secret,
        Err(problem) => return problem.into_response(),
    };
    let Some(grant) = state.tokens.find(secret, SystemClock.now()) else {
        if let Some(address) = address {
            state.throttle.record_failure(address);
        }
        return Problem::unauthorized("the token is unknown, revoked or expired").into_response();
    };
    let quota = state.rates.admit_request(&grant.id);
    let id = RequestToken(Arc::clone(&grant.id));
    let mut response = if let Some(problem) = quota.and_then(|quota| quota.refusal()) {
        problem.into_response()
    } else if grant.has(scope) {
        request.extensions_mut().insert(ApiCaller { grant });
        next.run(request).await
    } else {
        let message = format!("this token lacks the scope \"{}\"", scope.as_str());
        Problem::forbidden(message)
            .hint("create one with `polity token create NAME --scope SCOPE`")
            .into_response()
    };
    if let Some(quota) = quota {
        quota.write(response.headers_mut());
    }
    response.extensions_mut().insert(id);
    response
}

fn secret_of(headers: &HeaderMap) -> Result<&str, Problem> {
    let bearers = headers.get_all(header::AUTHORIZATION).iter().count();
    // With several, a proxy and the server could mean different ones.
    if bearers + headers.get_all(API_KEY_HEADER).iter().count() > 1 {
        return Err(Problem::unauthorized("the request has more than one token"));
    }
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let bearer = value.to_str().ok().and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        return bearer.filter(|token| !token.is_empty()).ok_or_else(|| {
            Problem::unauthorized("the Authorization header is not \"Bearer TOKEN\"")
        });
    }
    if let Some(value) = headers.get(API_KEY_HEADER) {
        return value
            .to_str()
            .ok()
            .filter(|token| !token.is_empty())
            .ok_or_else(|| Problem::unauthorized("the X-Api-Key header is not a token"));
    }
    Err(Problem::unauthorized("the request has no token"))
}
