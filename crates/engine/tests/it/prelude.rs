//! The imports that most tests of the runtime share.

pub(crate) use std::collections::{BTreeMap, BTreeSet};
pub(crate) use std::fmt::Write;
pub(crate) use std::num::{NonZeroU32, NonZeroU64};
pub(crate) use std::sync::{Arc, Mutex};
pub(crate) use std::time::Duration;

pub(crate) use jiff::Timestamp;
pub(crate) use polity_definition::{AgentDefinition, Limits, TokenPrice};
pub(crate) use polity_engine::clock::SystemClock;
pub(crate) use polity_engine::commands::{AnswerReview, CreateTask};
pub(crate) use polity_engine::decide::CommandRejection;
pub(crate) use polity_engine::driver::{
    AnswerEnding, AskedArguments, AskedTool, BoxFuture, ModelDriver, ModelFailure, ModelReply,
    ModelRequest, NotReady, RunEnd,
};
pub(crate) use polity_engine::pinned::PinnedAgent;
pub(crate) use polity_engine::runtime::{
    CancelOutcome, EngineError, ForkRequest, LiveEvent, RetryError, RetryRequest, Runtime,
    RuntimeDeps, TaskHandle, active_root, find_orphans, load_task,
};
pub(crate) use polity_engine::state::TaskState;
pub(crate) use polity_model::budget::Budget;
pub(crate) use polity_model::event::{
    Event, NodeChange, RecordedEvent, StreamId, StreamSequence, ToolChange,
};
pub(crate) use polity_model::failure::{AttemptFailure, ErrorCategory, ErrorCode};
pub(crate) use polity_model::ids::{CheckpointId, TaskId};
pub(crate) use polity_model::machine::task::TaskStatus;
pub(crate) use polity_model::message::Message;
pub(crate) use polity_model::review::{ReviewSubject, ReviewVerdict};
pub(crate) use polity_model::state::StateUpdates;
pub(crate) use polity_model::task::Task;
pub(crate) use polity_model::usage::Usage;
pub(crate) use polity_store::{ExecutionFilter, MemoryStore, Store, TaskFilter, TaskRow};
pub(crate) use polity_testkit::faults::{AcknowledgedCommit, CrashSide, CrashingStore};
pub(crate) use polity_testkit::runtime::{
    FakeModelTurn, FakeModels, TestLeases, TokioClock, boss, cancel_from_outside, create_task,
    runtime_deps,
};
pub(crate) use polity_testkit::task_fixtures::instance_id;
pub(crate) use polity_testkit::tools::{FakeToolAct, FakeTools, ToolEffects};
pub(crate) use serde_json::{Map, Value, json};

pub(crate) use crate::runtime_fixture::{
    RuntimeFixture, adopt, answer_review, complete, create_all, pause, permanent, pinned_agent,
    sleep, start, transient,
};
