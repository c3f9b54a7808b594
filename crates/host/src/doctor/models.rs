//! The models of the home: each distinct one is asked for its list of models, which costs nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use polity_definition::{AgentDefinition, AgentKind, Home, LlmConfig};
use polity_drivers::llm::{LanguageModels, ModelReach, base_address};
use polity_engine::driver::NotReady;
use tokio::task::JoinSet;

use super::{CheckSubject, DoctorCheck, PROBE_TIMEOUT};
use crate::context::HostContext;

const SUBJECT: CheckSubject = CheckSubject::Models;

/// A model as its server and its key distinguish it: provider, address, model, variable of the key.
type ModelKey = (String, Option<String>, Option<String>, Option<String>);

pub(super) async fn checks(context: &HostContext, home: &Home) -> Vec<DoctorCheck> {
    let mut groups: BTreeMap<ModelKey, Vec<&Arc<AgentDefinition>>> = BTreeMap::new();
    for agent in home.agents.values() {
        if let AgentKind::Llm(llm) = &agent.kind {
            groups.entry(key_of(&llm.llm_config)).or_default().push(agent);
        }
    }
    let models = Arc::new(LanguageModels::new(context.environment().clone()));
    let mut probes = JoinSet::new();
    for agents in groups.values() {
        let Some(first) = agents.first().map(|agent| Arc::clone(agent)) else { continue };
        let users: Vec<String> = agents.iter().map(|agent| agent.name.to_string()).collect();
        let models = Arc::clone(&models);
        probes.spawn(async move {
            let AgentKind::Llm(llm) = &first.kind else { return None };
            let reach = models.reach(llm, PROBE_TIMEOUT).await;
            Some(describe(&llm.llm_config, &users, reach))
        });
    }
    let mut checks: Vec<_> = probes.join_all().await.into_iter().flatten().collect();
    checks.sort_by(|a, b| a.name.cmp(&b.name));
    checks
}

fn key_of(config: &LlmConfig) -> ModelKey {
    (
        config.provider.as_str().to_owned(),
        base_address(config).map(str::to_owned),
        config.model.as_ref().map(ToString::to_string),
        config.api_key_env.as_ref().map(ToString::to_string),
    )
}

fn describe(
    config: &LlmConfig,
    users: &[String],
    reach: Result<ModelReach, NotReady>,
) -> DoctorCheck {
    let provider = config.provider.as_str();
    let name = match &config.model {
        Some(model) => format!("{provider}/{model}"),
        None => provider.to_owned(),
    };
    let meaning = format!("tasks of {} fail", users.join(", "));
    let missing = |finding: String| {
        DoctorCheck::missing(SUBJECT, name.clone(), finding).meaning(meaning.clone()).needed()
    };
    match reach {
        Ok(ModelReach::Scripted) => DoctorCheck::ok(SUBJECT, name, "answers from a file"),
        Ok(ModelReach::Ready) => DoctorCheck::ok(SUBJECT, name, "answers"),
        Ok(ModelReach::Unlisted) => {
            DoctorCheck::weaker(SUBJECT, name, "the server answers, and has no list of models")
                .meaning("the first task shows if the model works")
        }
        Ok(ModelReach::UnknownModel) => {
            DoctorCheck::weaker(SUBJECT, name, "the server does not list this model")
                .meaning(format!("{meaning}, unless it is another name of a model"))
                .fix("check llm_config.model")
        }
        Ok(ModelReach::KeyRefused { variable: Some(variable) }) => {
            missing(format!("the server refuses the key in {variable}"))
                .fix(format!("put a valid key into {variable}"))
        }
        Ok(ModelReach::KeyRefused { variable: None }) => missing("the server wants a key".into())
            .fix("name the variable with the key in llm_config.api_key_env"),
        Ok(ModelReach::Status(status)) => {
            missing(format!("the server answers with the status {status}"))
                .fix("try again later, or check llm_config.endpoint")
        }
        Ok(ModelReach::Unreachable(reason)) => missing(format!("cannot be reached: {reason}"))
            .fix("check the network, the proxy variables and llm_config.endpoint"),
        Err(NotReady { message, hint }) => missing(message).fix(hint),
    }
}
