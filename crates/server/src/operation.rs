//! The operation of a server: live events, adoption of interrupted tasks, health, metrics and the
//! lock of the home.

pub(crate) mod adoption;
pub(crate) mod definitions;
pub(crate) mod event_hub;
pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod resource_guard;
pub(crate) mod retention;
pub(crate) mod scheduling;
pub(crate) mod server_lock;
pub(crate) mod service_manager;
pub(crate) mod simulation_runs;
pub(crate) mod task_times;
