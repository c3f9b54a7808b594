//! Tests of the runtime through its public API.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod budgets;
mod faults;
mod faults_programs;
mod faults_workflows;
mod participants;
mod prelude;
mod processes;
mod programs;
mod queue;
mod remotes;
mod runtime_fixture;
mod sub_agents;
mod task_outcomes;
mod tools;
mod workflow_harness;
mod workflows;
mod workflows_forks;
mod workflows_human_review;
mod workflows_parallel;
mod workflows_work;
