//! Tests of the runtime through its public API.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod budgets;
mod faults;
mod faults_compensation;
mod faults_programs;
mod faults_workflows;
mod note_calls;
mod participants;
mod prelude;
mod processes;
mod programs;
mod queue;
mod remotes;
mod retries;
mod retries_doubts;
mod retries_workflows;
mod runtime_fixture;
mod schedules;
mod sub_agents;
mod task_outcomes;
mod tools;
mod workflow_harness;
mod workflow_programs;
mod workflows;
mod workflows_compensation;
mod workflows_errors;
mod workflows_forks;
mod workflows_human_review;
mod workflows_map;
mod workflows_parallel;
mod workflows_scripts;
mod workflows_work;
