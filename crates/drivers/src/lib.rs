//! Who does the work. Each driver performs one effect and knows nothing of tasks, queues or the
//! journal: the engine tells it what to do and records what came of it.

mod environment;
pub mod http;
pub mod llm;
pub mod mcp;
pub mod process;

pub use environment::Environment;
