//! `polity serve` and `polity token`: a real server process and raw HTTP requests.

mod charts_and_tools;
mod client;
mod client_commands;
mod client_errors;
mod client_signals;
mod contract;
mod executions;
mod hostile_requests;
mod idempotency;
mod live_events;
mod operation;
mod rate_limits;
mod route_table;
mod schedules;
mod service_manager;
mod simulations;
mod tasks;
mod tls;
mod tokens;
mod webhooks;
