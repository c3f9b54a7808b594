//! Lists the tools of a task.

use std::collections::BTreeSet;
use std::sync::Arc;

use polity_model::failure::ErrorCategory;
use polity_model::tool::ToolPattern;

use crate::decide::backoff;
use crate::driver::{CallSite, ToolSpec, Toolbox, ToolsUnavailable};
use crate::entropy::Entropy;
use crate::pinned::PinnedAgent;
use crate::runtime::RuntimeInner;

/// The maximum number of retries before a task continues without the tools.
const LISTING_RETRIES_MAX: u32 = 3;

/// The listed tools together with the sub-agents.
pub(super) fn with_sub_agents(listed: Arc<Toolbox>, sub_agents: &[Arc<ToolSpec>]) -> Arc<Toolbox> {
    if sub_agents.is_empty() { listed } else { Arc::new(listed.joined(sub_agents)) }
}

/// The tools that an agent may use.
pub(super) fn agent_patterns(pinned: &PinnedAgent) -> &[ToolPattern] {
    pinned.llm().map_or(&[], |llm| &llm.tools)
}

/// Lists tools. If a server cannot be reached, only its own tools are missing.
pub(super) async fn list_available(
    inner: &RuntimeInner,
    patterns: &[ToolPattern],
    call_site: CallSite<'_>,
) -> Arc<Toolbox> {
    let error = match list_with_retries(inner, patterns, call_site).await {
        Ok(toolbox) => return toolbox,
        Err(error) => error,
    };
    let servers: BTreeSet<&str> = patterns.iter().map(ToolPattern::server).collect();
    let is_alone = servers.len() == 1;
    let mut available = Toolbox::default();
    for server in servers {
        let own: Vec<ToolPattern> =
            patterns.iter().filter(|pattern| pattern.server() == server).cloned().collect();
        // A call site of its own: the recording of all servers does not apply to one.
        let session = format!("{}/tools of {server}", call_site.session);
        let listed = if is_alone {
            Err(error.clone())
        } else {
            list_tools(inner, &own, CallSite { session: &session, ..call_site }).await
        };
        available = match listed {
            Ok(listed) => available.and(&listed),
            Err(error) => {
                tracing::warn!(%server, %error, "the tools of a server could not be listed");
                available.and(&Toolbox::lost(server, &error.to_string()))
            }
        };
    }
    Arc::new(available)
}

/// Lists tools, with retries after transient failures.
async fn list_with_retries(
    inner: &RuntimeInner,
    patterns: &[ToolPattern],
    call_site: CallSite<'_>,
) -> Result<Arc<Toolbox>, ToolsUnavailable> {
    let mut entropy = Entropy::from_seed(inner.deps.entropy.seed());
    let mut retries = 0;
    loop {
        match list_tools(inner, patterns, call_site).await {
            Err(error)
                if error.failure.category == ErrorCategory::Transient
                    && retries < LISTING_RETRIES_MAX =>
            {
                tokio::time::sleep(backoff::delay(retries, None, &mut entropy)).await;
                retries += 1;
            }
            listed => return listed,
        }
    }
}

/// Lists tools. Asks no server if no tool is named.
pub(super) async fn list_tools(
    inner: &RuntimeInner,
    patterns: &[ToolPattern],
    call_site: CallSite<'_>,
) -> Result<Arc<Toolbox>, ToolsUnavailable> {
    if patterns.is_empty() {
        return Ok(Arc::default());
    }
    inner.deps.tools.toolbox(patterns, call_site).await
}
