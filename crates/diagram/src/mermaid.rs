//! Mermaid output: flowcharts of workflows, state diagrams of charts and state machines.

mod flowchart;
mod machine;
mod state_diagram;

#[cfg(test)]
mod tests;

pub(crate) use self::flowchart::write;
pub use self::machine::machine_to_mermaid;
pub use self::state_diagram::chart_to_mermaid;
