//! The route from a finished node.

use polity_definition::EvaluationError;
use polity_definition::{PlanEdge, PlanTarget, WorkflowNodeKind, WorkflowPlan};
use polity_model::failure::ErrorCode;

use crate::state::{NodeOutcome, WorkflowProgress, WorkflowRun};

/// The routing key of a rejection.
const REJECT: &str = "reject";

/// The message for edges whose `max_loops` is used up.
const USED_UP: &str = "the edges that lead back were taken as often as max_loops allows";

/// The reason why no outgoing edge of a node is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RouteError {
    /// The condition of an edge cannot be evaluated.
    Condition { edge: usize, error: EvaluationError },
    /// A person rejected, and no edge for a rejection is open.
    Rejected { is_used_up: bool },
    /// Every matching edge leads back and is used up.
    UsedUp,
    /// No edge matches the routing key.
    NoEdge { key: Option<String> },
}

impl RouteError {
    /// The edge whose condition cannot be evaluated.
    pub(crate) fn edge(&self) -> Option<usize> {
        match self {
            Self::Condition { edge, .. } => Some(*edge),
            Self::Rejected { .. } | Self::UsedUp | Self::NoEdge { .. } => None,
        }
    }

    /// The failure of the node. `said` is the message of the person who answered.
    pub(crate) fn into_failure(self, said: Option<&str>) -> (ErrorCode, String) {
        match self {
            Self::Condition { edge, error } => {
                let why = format!("the condition of edges[{edge}] cannot be evaluated: {error}");
                (ErrorCode::ConditionFailed, why)
            }
            Self::Rejected { .. } => {
                let said = said.map(|said| format!(": {said}")).unwrap_or_default();
                (ErrorCode::Rejected, format!("a person rejected it{said}"))
            }
            Self::UsedUp => {
                (ErrorCode::LimitLoops, format!("{USED_UP}, and no other edge matches"))
            }
            Self::NoEdge { key } => {
                let key = key.map_or("none".to_owned(), |key| format!("\"{key}\""));
                let why = format!(
                    "no outgoing edge matches the routing key {key}; add an edge for it, or a \
                     default to the mapping"
                );
                (ErrorCode::NoEdge, why)
            }
        }
    }

    /// The message for a person who might answer with `action`.
    pub(crate) fn before_answering(&self, action: &str) -> String {
        match self {
            Self::Condition { edge, error } => {
                format!("the condition of edges[{edge}] cannot be evaluated: {error}")
            }
            Self::Rejected { is_used_up: true } | Self::UsedUp => USED_UP.to_owned(),
            Self::Rejected { is_used_up: false } | Self::NoEdge { .. } => {
                format!("no edge for {action}")
            }
        }
    }
}

/// Returns the links to take when a node ends: every edge whose condition holds, and one link per
/// mapping. `run` is the state before the end, `progress` includes the events so far.
pub(crate) fn route(
    run: &WorkflowRun,
    progress: &WorkflowProgress,
    after: &NodeOutcome<'_>,
) -> Result<Vec<usize>, RouteError> {
    let plan = run.plan();
    let node = &plan.nodes()[after.node];
    let newest = run.message_after(after);
    let scope = run.scope_after(after, newest.as_ref());
    // A rejection only follows edges that mention it.
    let is_asked = matches!(node.node.kind, WorkflowNodeKind::Human { .. });
    let is_rejected = is_asked && scope.routing_key == Some(REJECT);
    let mut taken = Vec::new();
    let mut is_used_up = false;
    for index in &node.edges {
        let edge = &plan.edges()[*index];
        if is_rejected && !is_meant_for_reject(edge) {
            continue;
        }
        if let Some(condition) = &edge.condition {
            let holds = condition.holds(&scope);
            if !holds.map_err(|error| RouteError::Condition { edge: *index, error })? {
                continue;
            }
        }
        let is_open = |link: &usize| {
            let limit = edge.max_loops.map_or(u32::MAX, std::num::NonZeroU32::get);
            !plan.links()[*link].is_back || progress.loops(*index) < limit
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
        // Links ahead are decided when the loop comes back here.
        taken.retain(leads_back);
        taken.truncate(1);
    }
    if !taken.is_empty() || node.edges.is_empty() && !is_rejected {
        return Ok(taken);
    }
    Err(if is_rejected {
        RouteError::Rejected { is_used_up }
    } else if is_used_up {
        RouteError::UsedUp
    } else {
        RouteError::NoEdge { key: scope.routing_key.map(str::to_owned) }
    })
}

/// Returns the error link to take when a node fails, unless its `max_loops` is used up. `edge` is the
/// edge whose condition could not be evaluated.
pub(crate) fn error_link(
    plan: &WorkflowPlan,
    progress: &WorkflowProgress,
    node: usize,
    edge: Option<usize>,
) -> Option<usize> {
    let index = plan.error_link(node, edge)?;
    let link = plan.links()[index];
    let limit = link.edge.and_then(|edge| Some((edge, plan.edges()[edge].max_loops?)));
    let is_used_up =
        link.is_back && limit.is_some_and(|(edge, limit)| progress.loops(edge) >= limit.get());
    (!is_used_up).then_some(index)
}

/// True if an edge names the route of a rejection.
fn is_meant_for_reject(edge: &PlanEdge) -> bool {
    let is_keyed = match &edge.target {
        PlanTarget::Node(_) => false,
        PlanTarget::ByRoutingKey { links, .. } => links.contains_key(REJECT),
    };
    let asks = edge.condition.as_ref().is_some_and(|condition| condition.mentions("routing_key"));
    is_keyed || asks
}
