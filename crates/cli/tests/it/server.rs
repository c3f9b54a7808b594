//! `polity serve` and `polity token`: a real server process and raw HTTP requests.

mod client;
mod hostile_requests;
mod live_events;
mod operation;
mod tasks;
mod tokens;
