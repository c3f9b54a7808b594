//! `polity.yaml`: the settings of a home. All are optional, and so is the file.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};

use polity_masking::RedactionSettings;
use polity_model::inline_schema;
use polity_model::name::Name;
use polity_model::value::InvalidValue;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::protection::{RateLimits, TlsFile, TlsSettings};
use super::redaction::RedactionFile;
use super::webhooks::{WebhookFile, WebhookSettings, check_webhooks};
use crate::file::checker::{FileChecker, NameReference};
use crate::file::path::FieldPath;
use crate::file::problem::FindingText;
use crate::value::command_line::ProgramCommand;
use crate::value::{HttpUrl, Text, UrlTemplate};
use crate::{nonzero_u32, nonzero_u64};

const CONCURRENT_TASKS_DEFAULT: NonZeroU32 = nonzero_u32(64);
const INPUT_BYTES_DEFAULT: NonZeroU64 = nonzero_u64(10 << 20);
const OUTPUT_BYTES_DEFAULT: NonZeroU64 = nonzero_u64(100 << 20);
const ARTIFACT_FILES_DEFAULT: NonZeroU32 = nonzero_u32(1000);
const ARTIFACT_BYTES_DEFAULT: NonZeroU64 = nonzero_u64(100 << 20);
const SUB_AGENT_DEPTH_DEFAULT: NonZeroU32 = nonzero_u32(4);
const SUB_AGENT_FAN_OUT_DEFAULT: NonZeroU32 = nonzero_u32(16);
const SUB_AGENTS_DEFAULT: NonZeroU32 = nonzero_u32(1000);
const MAP_ITEMS_DEFAULT: NonZeroU32 = nonzero_u32(10_000);
/// The highest `limits.map_items`.
pub const MAP_ITEMS_MAX: NonZeroU32 = nonzero_u32(100_000);
const REMOTE_SECONDS_DEFAULT: NonZeroU64 = nonzero_u64(3600);
const DRAIN_SECONDS_DEFAULT: u32 = 30;
const MIN_FREE_DISK_BYTES_DEFAULT: u64 = 64 << 20;
const MIN_FREE_MEMORY_BYTES_DEFAULT: u64 = 32 << 20;
const CONCURRENT_SIMULATIONS_DEFAULT: NonZeroU32 = nonzero_u32(2);
const REMOTE_IDLE_SECONDS_DEFAULT: NonZeroU64 = nonzero_u64(300);

/// The settings of a home.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "settings")]
pub(crate) struct SettingsFile {
    /// The store.
    store: Option<StoreFile>,
    /// The server.
    server: Option<ServerFile>,
    /// Configured limits.
    limits: Option<LimitsFile>,
    /// Additional masking of stored and shown text, besides known secrets.
    redaction: Option<RedactionFile>,
    /// Notifications.
    notify: Option<NotifyFile>,
}

/// The store.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StoreFile {
    /// `full` survives the loss of power; `relaxed` survives a crash of the program and is faster.
    #[schemars(extend("default" = DurabilitySetting::Full))]
    durability: Option<DurabilitySetting>,
}

/// The durability of a commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Durability")]
pub enum DurabilitySetting {
    /// Survives the loss of power.
    #[default]
    Full,
    /// Survives a crash of the program, but not the loss of power. Commits are faster.
    Relaxed,
}

/// The server.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ServerFile {
    /// The address and port to listen on.
    #[schemars(extend("default" = "127.0.0.1:7070"))]
    listen: Option<ListenAddress>,
    /// The public address of this server, if it differs.
    public_url: Option<HttpUrl>,
    /// The agent or workflow that answers when a caller names none.
    default_agent: Option<Name>,
    /// The authentication of callers.
    auth: Option<AuthFile>,
    /// The rate limits; none by default.
    rate_limits: Option<RateLimits>,
    /// TLS; without it, the server speaks plain HTTP.
    tls: Option<TlsFile>,
    /// The time for running tasks to end when the server stops, in seconds. The others are resumed
    /// at the next start.
    #[schemars(extend("default" = DRAIN_SECONDS_DEFAULT))]
    drain_seconds: Option<u32>,
    /// The free space on the disk of `data/` below which the server takes no new work, in bytes.
    #[schemars(extend("default" = MIN_FREE_DISK_BYTES_DEFAULT))]
    min_free_disk_bytes: Option<u64>,
    /// The free memory of the machine or control group below which the server takes no new work, in
    /// bytes.
    #[schemars(extend("default" = MIN_FREE_MEMORY_BYTES_DEFAULT))]
    min_free_memory_bytes: Option<u64>,
    /// The most simulations that the server runs at a time.
    #[schemars(extend("default" = CONCURRENT_SIMULATIONS_DEFAULT))]
    concurrent_simulations: Option<NonZeroU32>,
}

/// An IP address and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct ListenAddress(SocketAddr);

impl ListenAddress {
    /// Only this machine can reach it.
    const DEFAULT: Self =
        Self(SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7070));
}

impl TryFrom<String> for ListenAddress {
    type Error = InvalidValue;

    fn try_from(text: String) -> Result<Self, InvalidValue> {
        text.parse().map(Self).map_err(|_| {
            InvalidValue::new(format!(
                "\"{text}\" is not an IP address and a port such as 127.0.0.1:7070"
            ))
        })
    }
}

inline_schema!(ListenAddress, { "type": "string", "pattern": ":[0-9]{1,5}$" });

/// The authentication of callers.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AuthFile {
    /// The file that `polity token` writes, relative to the home; default `data/tokens.json`.
    tokens_file: Option<Text>,
    /// True if a server that only this machine reaches makes a token for its user, in
    /// `data/server.token`.
    #[schemars(extend("default" = true))]
    local_token: Option<bool>,
}

/// Configured limits.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LimitsFile {
    /// The most concurrent tasks of one process; others are queued.
    #[schemars(extend("default" = CONCURRENT_TASKS_DEFAULT))]
    concurrent_tasks: Option<NonZeroU32>,
    /// The largest input of a task, in bytes.
    #[schemars(extend("default" = INPUT_BYTES_DEFAULT))]
    input_bytes: Option<NonZeroU64>,
    /// The largest output of one execution, in bytes.
    #[schemars(extend("default" = OUTPUT_BYTES_DEFAULT))]
    output_bytes: Option<NonZeroU64>,
    /// The most artifacts of one run.
    #[schemars(extend("default" = ARTIFACT_FILES_DEFAULT))]
    artifact_files: Option<NonZeroU32>,
    /// The total size of the artifacts of one run, in bytes.
    #[schemars(extend("default" = ARTIFACT_BYTES_DEFAULT))]
    artifact_bytes: Option<NonZeroU64>,
    /// The depth limit of delegation to sub-agents.
    #[schemars(extend("default" = SUB_AGENT_DEPTH_DEFAULT))]
    sub_agent_depth: Option<NonZeroU32>,
    /// The most sub-agents that one answer of a model may call.
    #[schemars(extend("default" = SUB_AGENT_FAN_OUT_DEFAULT))]
    sub_agent_fan_out: Option<NonZeroU32>,
    /// The most sub-agents of one task, at all depths and over all turns. Each item of a map counts
    /// its own.
    #[schemars(extend("default" = SUB_AGENTS_DEFAULT))]
    sub_agents: Option<NonZeroU32>,
    /// The most items of one map.
    #[schemars(range(max = MAP_ITEMS_MAX.get()), extend("default" = MAP_ITEMS_DEFAULT))]
    map_items: Option<NonZeroU32>,
    /// The time limit of one message to a remote agent, in seconds, however busy the agent is.
    #[schemars(extend("default" = REMOTE_SECONDS_DEFAULT))]
    remote_seconds: Option<NonZeroU64>,
    /// The longest time in which a remote agent may show no progress, in seconds.
    #[schemars(extend("default" = REMOTE_IDLE_SECONDS_DEFAULT))]
    remote_idle_seconds: Option<NonZeroU64>,
}

/// Notifications.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NotifyFile {
    /// Notifications about new reviews.
    on_review: Option<OnReview>,
    /// The addresses that `polity serve` notifies of events, in the form of Standard Webhooks.
    webhooks: Option<Vec<WebhookFile>>,
}

/// The notifications about a new review.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OnReview {
    /// A program to run, with its arguments; it reads the review as JSON from stdin. No shell is
    /// involved. `${NAME}` in an argument is replaced by an environment variable.
    pub command: Option<ProgramCommand>,
    /// The address to post the review to as JSON. `${NAME}` is replaced by an environment variable.
    pub webhook: Option<UrlTemplate>,
}

impl NotifyFile {
    fn webhook(&self) -> Option<&UrlTemplate> {
        self.on_review.as_ref()?.webhook.as_ref()
    }
}

/// The settings of a home, valid and with their defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct HomeSettings {
    /// The durability of a commit.
    pub durability: DurabilitySetting,
    /// The server.
    pub server: ServerSettings,
    /// Configured limits.
    pub limits: Limits,
    /// Additional masking, besides known secrets.
    pub redaction: RedactionSettings,
    /// The notifications about a new review.
    pub on_review: OnReview,
    /// The addresses that a server notifies of events.
    pub webhooks: Vec<WebhookSettings>,
}

/// The server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// The address and port to listen on.
    pub listen: SocketAddr,
    /// The public address of this server, if it differs.
    pub public_url: Option<HttpUrl>,
    /// The agent or workflow that answers when a caller names none.
    pub default_agent: Option<Name>,
    /// The file of tokens, relative to the home.
    pub tokens_file: Option<Text>,
    /// True if a server that only this machine reaches makes a token for its user.
    pub local_token: bool,
    /// The rate limits.
    pub rate_limits: RateLimits,
    /// TLS; without it, the server speaks plain HTTP.
    pub tls: Option<TlsSettings>,
    /// The time for running tasks to end when the server stops, in seconds.
    pub drain_seconds: u32,
    /// The free space on the disk below which the server takes no new work, in bytes.
    pub min_free_disk_bytes: u64,
    /// The free memory below which the server takes no new work, in bytes.
    pub min_free_memory_bytes: u64,
    /// The most simulations that the server runs at a time.
    pub concurrent_simulations: NonZeroU32,
}

/// Configured limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most concurrent tasks of one process; others are queued.
    pub concurrent_tasks: NonZeroU32,
    /// The largest input of a task.
    pub input_bytes: NonZeroU64,
    /// The largest output of one execution.
    pub output_bytes: NonZeroU64,
    /// The most artifacts of one run.
    pub artifact_files: NonZeroU32,
    /// The total size of the artifacts of one run, in bytes.
    pub artifact_bytes: NonZeroU64,
    /// The depth limit of delegation to sub-agents.
    pub sub_agent_depth: NonZeroU32,
    /// The most sub-agents that one answer of a model may call.
    pub sub_agent_fan_out: NonZeroU32,
    /// The most sub-agents of one task, at all depths and over all turns. Each item of a map counts
    /// its own.
    pub sub_agents: NonZeroU32,
    /// The most items of one map.
    pub map_items: NonZeroU32,
    /// The time limit of one message to a remote agent, in seconds.
    pub remote_seconds: NonZeroU64,
    /// The longest time in which a remote agent may show no progress, in seconds.
    pub remote_idle_seconds: NonZeroU64,
}

impl Default for HomeSettings {
    fn default() -> Self {
        SettingsFile::default().with_checked(RedactionSettings::default(), None, Vec::new())
    }
}

impl SettingsFile {
    pub(crate) fn check(mut self, checker: &mut FileChecker) -> HomeSettings {
        if let Some(name) = self.server.as_ref().and_then(|server| server.default_agent.clone()) {
            let path = FieldPath::root().field("server").field("default_agent");
            checker.refer(path, NameReference::AgentOrWorkflow(name));
        }
        let map_items = self.limits.as_ref().and_then(|limits| limits.map_items);
        if let Some(items) = map_items.filter(|items| *items > MAP_ITEMS_MAX) {
            let path = FieldPath::root().field("limits").field("map_items");
            let message =
                format!("{path}: {items} is more than {MAP_ITEMS_MAX}, the most there is");
            checker.report(&path, FindingText::new(message));
        }
        let path = FieldPath::root().field("redaction");
        let redaction = self.redaction.take().unwrap_or_default().check(&path, checker);
        if let Some(webhook) = self.notify.as_ref().and_then(NotifyFile::webhook) {
            let path = FieldPath::root().field("notify").field("on_review").field("webhook");
            checker.refuse_secret(&path, "WEBHOOK", webhook.as_str());
        }
        let tls = self.server.as_mut().and_then(|server| server.tls.take());
        let tls =
            tls.and_then(|tls| tls.check(&FieldPath::root().field("server").field("tls"), checker));
        let webhooks = self.notify.as_mut().and_then(|notify| notify.webhooks.take());
        let path = FieldPath::root().field("notify").field("webhooks");
        let webhooks = check_webhooks(webhooks.unwrap_or_default(), &path, checker);
        self.with_checked(redaction, tls, webhooks)
    }

    fn with_checked(
        self,
        redaction: RedactionSettings,
        tls: Option<TlsSettings>,
        webhooks: Vec<WebhookSettings>,
    ) -> HomeSettings {
        let server = self.server.unwrap_or_default();
        let auth = server.auth.unwrap_or_default();
        let limits = self.limits.unwrap_or_default();
        HomeSettings {
            durability: self.store.and_then(|store| store.durability).unwrap_or_default(),
            server: ServerSettings {
                listen: server.listen.unwrap_or(ListenAddress::DEFAULT).0,
                public_url: server.public_url,
                default_agent: server.default_agent,
                tokens_file: auth.tokens_file,
                local_token: auth.local_token.unwrap_or(true),
                rate_limits: server.rate_limits.unwrap_or_default(),
                tls,
                drain_seconds: server.drain_seconds.unwrap_or(DRAIN_SECONDS_DEFAULT),
                min_free_disk_bytes: server
                    .min_free_disk_bytes
                    .unwrap_or(MIN_FREE_DISK_BYTES_DEFAULT),
                min_free_memory_bytes: server
                    .min_free_memory_bytes
                    .unwrap_or(MIN_FREE_MEMORY_BYTES_DEFAULT),
                concurrent_simulations: server
                    .concurrent_simulations
                    .unwrap_or(CONCURRENT_SIMULATIONS_DEFAULT),
            },
            limits: Limits {
                concurrent_tasks: limits.concurrent_tasks.unwrap_or(CONCURRENT_TASKS_DEFAULT),
                input_bytes: limits.input_bytes.unwrap_or(INPUT_BYTES_DEFAULT),
                output_bytes: limits.output_bytes.unwrap_or(OUTPUT_BYTES_DEFAULT),
                artifact_files: limits.artifact_files.unwrap_or(ARTIFACT_FILES_DEFAULT),
                artifact_bytes: limits.artifact_bytes.unwrap_or(ARTIFACT_BYTES_DEFAULT),
                sub_agent_depth: limits.sub_agent_depth.unwrap_or(SUB_AGENT_DEPTH_DEFAULT),
                sub_agents: limits.sub_agents.unwrap_or(SUB_AGENTS_DEFAULT),
                map_items: limits.map_items.unwrap_or(MAP_ITEMS_DEFAULT),
                sub_agent_fan_out: limits.sub_agent_fan_out.unwrap_or(SUB_AGENT_FAN_OUT_DEFAULT),
                remote_seconds: limits.remote_seconds.unwrap_or(REMOTE_SECONDS_DEFAULT),
                remote_idle_seconds: limits
                    .remote_idle_seconds
                    .unwrap_or(REMOTE_IDLE_SECONDS_DEFAULT),
            },
            redaction,
            webhooks,
            on_review: self.notify.and_then(|notify| notify.on_review).unwrap_or_default(),
        }
    }
}
