//! The runtime from the outside.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod budgets;
mod cast;
mod faults;
mod faults_programs;
mod faults_workflows;
mod lives;
mod processes;
mod programs;
mod queue;
mod remotes;
mod scene;
mod sub_agents;
mod tools;
mod workflows;
mod workflows_forks;
mod workflows_parallel;
mod workflows_people;
mod workflows_work;
