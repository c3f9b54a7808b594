//! The webhooks of a server: addresses that it notifies of events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file::checker::FileChecker;
use crate::file::path::FieldPath;
use crate::file::problem::FindingText;
use crate::value::{EnvName, Text, UrlTemplate};

/// The most webhooks of a home.
const WEBHOOKS_MAX: usize = 32;

/// An event that a webhook can be notified of.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum WebhookTopic {
    /// A task has ended. Parts of tasks are left out.
    TaskEnded,
    /// A task waits for a review.
    ReviewWaits,
    /// Due times of a schedule passed without a start.
    ScheduleMissed,
    /// A schedule was paused.
    SchedulePaused,
}

impl WebhookTopic {
    /// All topics.
    pub const ALL: [Self; 4] =
        [Self::TaskEnded, Self::ReviewWaits, Self::ScheduleMissed, Self::SchedulePaused];

    /// The name, as files and notifications have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TaskEnded => "task_ended",
            Self::ReviewWaits => "review_waits",
            Self::ScheduleMissed => "schedule_missed",
            Self::SchedulePaused => "schedule_paused",
        }
    }
}

/// A webhook.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Webhook")]
pub(super) struct WebhookFile {
    /// The address to post to. `${NAME}` is replaced by an environment variable.
    #[schemars(with = "UrlTemplate")]
    url: Option<UrlTemplate>,
    /// The events; default all.
    #[schemars(extend("default" = WebhookTopic::ALL, "uniqueItems" = true))]
    events: Option<Vec<WebhookTopic>>,
    /// The environment variable with the secret that signs notifications: `whsec_` and Base64.
    /// Several secrets are separated by spaces; each signs.
    #[schemars(with = "EnvName")]
    secret_env: Option<EnvName>,
    /// The host names that may have a private address. Others are refused with such an address.
    #[schemars(extend("default" = [] as [Text; 0]))]
    allow_private: Option<Vec<Text>>,
}

/// A webhook of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookSettings {
    /// The address to post to; it may name variables as `${NAME}`.
    pub url: UrlTemplate,
    /// The events.
    pub events: Vec<WebhookTopic>,
    /// The environment variable with the secrets that sign notifications.
    pub secret_env: EnvName,
    /// The host names that may have a private address.
    pub allow_private: Vec<Text>,
}

/// Checks the webhooks of a file.
pub(super) fn check_webhooks(
    files: Vec<WebhookFile>,
    path: &FieldPath,
    checker: &mut FileChecker,
) -> Vec<WebhookSettings> {
    if files.len() > WEBHOOKS_MAX {
        let message = format!("{path}: a home has at most {WEBHOOKS_MAX} webhooks");
        checker.report(path, FindingText::new(message));
    }
    let files = files.into_iter().enumerate();
    files.filter_map(|(index, file)| file.check(&path.index(index), checker)).collect()
}

impl WebhookFile {
    fn check(self, path: &FieldPath, checker: &mut FileChecker) -> Option<WebhookSettings> {
        let url_path = path.field("url");
        let url = checker.require(&url_path, self.url);
        if let Some(url) = &url {
            checker.refuse_secret(&url_path, "WEBHOOK", url.as_str());
        }
        let secret_env = checker.require(&path.field("secret_env"), self.secret_env);
        let events = self.events.unwrap_or_else(|| WebhookTopic::ALL.to_vec());
        let allow_private = self.allow_private.unwrap_or_default();
        checker.refuse_repeats(&path.field("allow_private"), &allow_private);
        Some(WebhookSettings { url: url?, events, secret_env: secret_env?, allow_private })
    }
}
