//! The way on from a node that has ended.

use polity_model::definition::{PlanEdge, PlanTarget};
use polity_model::failure::ErrorCode;

use super::Walking;
use crate::state::{After, Walk};

/// The routing key of a person who decided against it.
const REJECT: &str = "reject";

impl Walking<'_> {
    /// The links that are taken when a node ends. Every edge whose condition holds is taken; a
    /// mapping takes one of its links. `walk` is as it was just before, `said` is what a person said
    /// who was asked.
    pub(super) fn route(
        &self,
        walk: &Walk,
        after: &After<'_>,
        said: Option<&str>,
    ) -> Result<Vec<usize>, (ErrorCode, String)> {
        let plan = self.walk.plan();
        let node = &plan.nodes()[after.node];
        let newest = walk.message_after(after);
        let scope = walk.scope_after(after, newest.as_ref());
        // Someone who decides against it goes only where a way is meant for that.
        let is_rejected = after.state.is_some() && scope.routing_key == Some(REJECT);
        let mut taken = Vec::new();
        let mut is_used_up = false;
        for index in &node.edges {
            let edge = &plan.edges()[*index];
            if is_rejected && !is_meant_for_reject(edge) {
                continue;
            }
            if let Some(condition) = &edge.condition {
                let holds = condition.holds(&scope).map_err(|error| {
                    let why =
                        format!("the condition of edges[{index}] cannot be evaluated: {error}");
                    (ErrorCode::ConditionFailed, why)
                })?;
                if !holds {
                    continue;
                }
            }
            let is_open = |link: &usize| {
                let limit = edge.max_loops.map_or(u32::MAX, std::num::NonZeroU32::get);
                !plan.links()[*link].is_back || self.progress.loops(*index) < limit
            };
            let (link, other) = match &edge.target {
                PlanTarget::Node(link) => (Some(*link), None),
                PlanTarget::ByRoutingKey { links, default } => {
                    let named = scope.routing_key.and_then(|key| links.get(key)).copied();
                    (named.or(*default), *default)
                }
            };
            is_used_up |= link.is_some_and(|link| !is_open(&link));
            taken.extend(link.filter(is_open).or_else(|| other.filter(is_open)));
        }
        let leads_back = |link: &usize| plan.links()[*link].is_back;
        if taken.iter().any(leads_back) {
            // What lies ahead is decided when the way leads past here again.
            taken.retain(leads_back);
            taken.truncate(1);
        }
        if !taken.is_empty() || node.edges.is_empty() && !is_rejected {
            return Ok(taken);
        }
        let key = scope.routing_key.map_or("none".to_owned(), |key| format!("\"{key}\""));
        Err(if is_rejected {
            let said = said.map(|said| format!(": {said}")).unwrap_or_default();
            (ErrorCode::Rejected, format!("a person decided against it{said}"))
        } else if is_used_up {
            let why = "the edges that lead back were taken as often as max_loops allows, and no \
                       other leads on";
            (ErrorCode::LimitLoops, why.to_owned())
        } else {
            let why = format!("none of its edges leads on; the routing key is {key}");
            (ErrorCode::NoEdge, why)
        })
    }
}

/// Whether an edge says where a decision against it leads.
fn is_meant_for_reject(edge: &PlanEdge) -> bool {
    let is_keyed = match &edge.target {
        PlanTarget::Node(_) => false,
        PlanTarget::ByRoutingKey { links, .. } => links.contains_key(REJECT),
    };
    let asks = edge.condition.as_ref().is_some_and(|condition| condition.mentions("routing_key"));
    is_keyed || asks
}
