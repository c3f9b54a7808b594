//! Agent cards of A2A 1.0, 0.3, or both at once: the part that describes how to reach the agent.

use std::fmt;

use reqwest::Url;
use serde::Deserialize;

use super::encode::{A2aBinding, A2aInterface};
use crate::http::redact_url;

/// The fields of a card that are used.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub(crate) struct AgentCard {
    supported_interfaces: Vec<CardInterfaceV1>,
    protocol_version: Option<String>,
    url: Option<String>,
    preferred_transport: Option<String>,
    additional_interfaces: Vec<CardInterfaceV03>,
    capabilities: CardCapabilities,
}

/// An interface in a card of 1.0.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CardInterfaceV1 {
    url: String,
    #[serde(default)]
    protocol_binding: String,
    #[serde(default)]
    protocol_version: String,
    #[serde(default)]
    tenant: Option<String>,
}

/// An interface in a card of 0.3.
#[derive(Debug, Clone, Deserialize)]
struct CardInterfaceV03 {
    url: String,
    transport: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct CardCapabilities {
    streaming: bool,
}

/// An interface in a card of either version.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CardInterface {
    url: String,
    binding: String,
    version: String,
    tenant: Option<String>,
}

impl fmt::Display for CardInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.binding, self.version)
    }
}

/// A card without a usable interface. The message names the fix.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CardError {
    /// No offered binding is supported.
    #[error(
        "the card at {card} offers {offered}, and Polity supports {supported}: have the server \
         offer one of these"
    )]
    UnsupportedBindings { card: String, offered: String, supported: String },
    /// A supported binding has an invalid URL.
    #[error(
        "the card at {card} offers {offered} at \"{url}\", which is no address that starts with \
         http:// or https://: correct the card"
    )]
    InvalidUrl { card: String, offered: String, url: String },
    /// The token would be sent to another origin than that of `card_url`.
    #[error(
        "the card at {card} leads to {interface}, which is another origin, and the token in \
         {variable} is sent only to the origin of card_url: use the card at the origin that does \
         the work"
    )]
    OtherOrigin { card: String, interface: String, variable: String },
    /// The card came over TLS, and the interface has none.
    #[error(
        "the card at {card} came over https and leads to {interface}, which has no TLS: have the \
         server offer an https address"
    )]
    Downgrade { card: String, interface: String },
}

impl AgentCard {
    /// True if the agent streams task updates.
    pub(super) fn can_stream(&self) -> bool {
        self.capabilities.streaming
    }

    /// Selects the best supported interface; of equals, the one at the card's own origin. With a
    /// token in this variable, only the card's own origin is allowed.
    pub(crate) fn select_interface(
        &self,
        card: &Url,
        token: Option<&str>,
    ) -> Result<A2aInterface, CardError> {
        let interfaces = self.interfaces();
        let mut candidates: Vec<A2aInterface> =
            interfaces.iter().filter_map(CardInterface::to_supported).collect();
        let is_own = |interface: &A2aInterface| interface.url.origin() == card.origin();
        candidates.sort_by_key(|interface| (interface.binding, !is_own(interface)));
        let shown = redact_url(card);
        let Some(first) = candidates.first() else {
            if let Some(interface) =
                interfaces.iter().find(|interface| interface.binding().is_some())
            {
                let (offered, url) = (interface.to_string(), interface.url.clone());
                return Err(CardError::InvalidUrl { card: shown, offered, url });
            }
            let offered: Vec<_> = interfaces.iter().map(ToString::to_string).collect();
            let offered =
                if offered.is_empty() { "no interface".into() } else { offered.join(", ") };
            let supported = A2aBinding::ALL.map(|binding| binding.to_string()).join(", ");
            return Err(CardError::UnsupportedBindings { card: shown, offered, supported });
        };
        let interface = redact_url(&first.url);
        let is_safe = |interface: &A2aInterface| {
            card.scheme() != "https" || interface.url.scheme() == "https"
        };
        let Some(interface) = candidates.iter().find(|interface| is_safe(interface)) else {
            return Err(CardError::Downgrade { card: shown, interface });
        };
        let Some(variable) = token else { return Ok(interface.clone()) };
        let own = candidates.iter().find(|interface| is_safe(interface) && is_own(interface));
        own.cloned().ok_or_else(|| {
            let (interface, variable) = (redact_url(&interface.url), variable.to_owned());
            CardError::OtherOrigin { card: shown, interface, variable }
        })
    }

    /// All interfaces of the card, each once: a card for both versions repeats some.
    fn interfaces(&self) -> Vec<CardInterface> {
        let newer = self.supported_interfaces.iter().map(|interface| CardInterface {
            url: interface.url.clone(),
            binding: interface.protocol_binding.clone(),
            version: major_minor(&interface.protocol_version),
            tenant: interface.tenant.clone().filter(|tenant| !tenant.is_empty()),
        });
        let version = major_minor(self.protocol_version.as_deref().unwrap_or("0.3"));
        let preferred = self.preferred_transport.as_deref().unwrap_or("JSONRPC");
        let main = self.url.iter().map(|url| (url.clone(), preferred.to_owned()));
        let more = self.additional_interfaces.iter();
        let more = more.map(|interface| (interface.url.clone(), interface.transport.clone()));
        // A card without the 0.3 fields may still have a version.
        let older = main.chain(more).map(|(url, binding)| CardInterface {
            url,
            binding,
            version: version.clone(),
            tenant: None,
        });
        let mut interfaces: Vec<CardInterface> = Vec::new();
        for interface in newer.chain(older) {
            if !interfaces.contains(&interface) {
                interfaces.push(interface);
            }
        }
        interfaces
    }
}

impl CardInterface {
    /// The binding, if it is supported.
    fn binding(&self) -> Option<A2aBinding> {
        match (self.binding.as_str(), self.version.as_str()) {
            ("JSONRPC", "1.0") => Some(A2aBinding::JsonRpc1),
            ("HTTP+JSON", "1.0") => Some(A2aBinding::HttpJson1),
            ("JSONRPC", "0.3") => Some(A2aBinding::JsonRpc03),
            (_, _) => None,
        }
    }

    /// The interface, if its binding and URL are supported.
    fn to_supported(&self) -> Option<A2aInterface> {
        let binding = self.binding()?;
        let url = Url::parse(&self.url).ok()?;
        let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
        is_http.then(|| A2aInterface { url, binding, tenant: self.tenant.clone() })
    }
}

/// The first two numbers of a version, which identify the protocol.
fn major_minor(version: &str) -> String {
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
#[path = "card_tests.rs"]
mod tests;
