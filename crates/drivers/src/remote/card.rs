//! Cards: what an agent on another server says of itself, of which only the ways to reach it matter
//! here. Cards of 1.0, of 0.3 and of both at once are read.

use std::fmt;

use reqwest::Url;
use serde::Deserialize;

use super::speech::{Binding, Interface};
use crate::http::shown_url;

/// A card, as far as it is of use.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub(super) struct Card {
    supported_interfaces: Vec<Offer1>,
    protocol_version: Option<String>,
    url: Option<String>,
    preferred_transport: Option<String>,
    additional_interfaces: Vec<Offer03>,
    capabilities: Capabilities,
}

/// A way to reach the agent, as 1.0 has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Offer1 {
    url: String,
    #[serde(default)]
    protocol_binding: String,
    #[serde(default)]
    protocol_version: String,
    #[serde(default)]
    tenant: Option<String>,
}

/// A way to reach the agent, as 0.3 has it.
#[derive(Debug, Clone, Deserialize)]
struct Offer03 {
    url: String,
    transport: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Capabilities {
    streaming: bool,
}

/// A way to reach the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Offer {
    url: String,
    binding: String,
    version: String,
    tenant: Option<String>,
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.binding, self.version)
    }
}

/// Why a card leads nowhere. The message says what to do.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoWay {
    /// Nothing that the card offers is spoken here.
    #[error(
        "the card at {card} offers {offered}, and of that nothing is spoken here, which is \
         {spoken}: have the server offer one of these"
    )]
    NotSpoken {
        /// Where the card is.
        card: String,
        /// What it offers.
        offered: String,
        /// What is spoken.
        spoken: String,
    },
    /// What is spoken here is offered at something that is no address.
    #[error(
        "the card at {card} offers {offered} at \"{url}\", which is no address that starts with \
         http:// or https://: mend the card"
    )]
    NoAddress {
        /// Where the card is.
        card: String,
        /// What it offers there.
        offered: String,
        /// Where that should be.
        url: String,
    },
    /// A secret would go to someone else than the one whom the file names.
    #[error(
        "the card at {card} leads to {interface}, which is another origin, and the token in {} is \
         sent to the origin of card_url alone: name the card at the origin that does the work",
        variable
    )]
    OtherOrigin {
        /// Where the card is.
        card: String,
        /// Where it leads to.
        interface: String,
        /// The variable with the token.
        variable: String,
    },
    /// What is said would be readable on the way, although the card was not.
    #[error(
        "the card at {card} came over https and leads to {interface}, which has no TLS: have the \
         server offer an https address"
    )]
    Downgrade {
        /// Where the card is.
        card: String,
        /// Where it leads to.
        interface: String,
    },
}

impl Card {
    /// Whether the agent tells of its work as it goes on.
    pub(super) fn streams(&self) -> bool {
        self.capabilities.streaming
    }

    /// The best way to reach the agent: what is spoken best comes first, and of two that are spoken
    /// alike the one at the card's own origin. Where a token in this variable goes with each call, no
    /// other origin is called.
    pub(super) fn way(&self, card: &Url, token: Option<&str>) -> Result<Interface, NoWay> {
        let offers = self.offers();
        let mut ways: Vec<Interface> = offers.iter().filter_map(Offer::spoken).collect();
        let is_own = |way: &Interface| way.url.origin() == card.origin();
        ways.sort_by_key(|way| (way.binding, !is_own(way)));
        let shown = shown_url(card);
        let Some(first) = ways.first() else {
            if let Some(offer) = offers.iter().find(|offer| offer.binding().is_some()) {
                let (offered, url) = (offer.to_string(), offer.url.clone());
                return Err(NoWay::NoAddress { card: shown, offered, url });
            }
            let offered: Vec<_> = offers.iter().map(ToString::to_string).collect();
            let offered =
                if offered.is_empty() { "no interface".into() } else { offered.join(", ") };
            let spoken = Binding::ALL.map(|binding| binding.to_string()).join(", ");
            return Err(NoWay::NotSpoken { card: shown, offered, spoken });
        };
        let interface = shown_url(&first.url);
        let is_safe = |way: &Interface| card.scheme() != "https" || way.url.scheme() == "https";
        let Some(way) = ways.iter().find(|way| is_safe(way)) else {
            return Err(NoWay::Downgrade { card: shown, interface });
        };
        let Some(variable) = token else { return Ok(way.clone()) };
        let own = ways.iter().find(|way| is_safe(way) && is_own(way));
        own.cloned().ok_or_else(|| {
            let (interface, variable) = (shown_url(&way.url), variable.to_owned());
            NoWay::OtherOrigin { card: shown, interface, variable }
        })
    }

    /// All that the card offers. One for both versions names some ways twice.
    fn offers(&self) -> Vec<Offer> {
        let newer = self.supported_interfaces.iter().map(|offer| Offer {
            url: offer.url.clone(),
            binding: offer.protocol_binding.clone(),
            version: major_minor(&offer.protocol_version),
            tenant: offer.tenant.clone().filter(|tenant| !tenant.is_empty()),
        });
        let version = major_minor(self.protocol_version.as_deref().unwrap_or("0.3"));
        let preferred = self.preferred_transport.as_deref().unwrap_or("JSONRPC");
        let main = self.url.iter().map(|url| (url.clone(), preferred.to_owned()));
        let more = self.additional_interfaces.iter();
        let more = more.map(|offer| (offer.url.clone(), offer.transport.clone()));
        // A card without the fields of 0.3 may still have a version of its own.
        let older = main.chain(more).map(|(url, binding)| Offer {
            url,
            binding,
            version: version.clone(),
            tenant: None,
        });
        let mut offers: Vec<Offer> = Vec::new();
        for offer in newer.chain(older) {
            if !offers.contains(&offer) {
                offers.push(offer);
            }
        }
        offers
    }
}

impl Offer {
    /// How it is spoken, if it is here.
    fn binding(&self) -> Option<Binding> {
        match (self.binding.as_str(), self.version.as_str()) {
            ("JSONRPC", "1.0") => Some(Binding::JsonRpc1),
            ("HTTP+JSON", "1.0") => Some(Binding::HttpJson1),
            ("JSONRPC", "0.3") => Some(Binding::JsonRpc03),
            (_, _) => None,
        }
    }

    /// The way, if it is spoken here.
    fn spoken(&self) -> Option<Interface> {
        let binding = self.binding()?;
        let url = Url::parse(&self.url).ok()?;
        let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
        is_http.then(|| Interface { url, binding, tenant: self.tenant.clone() })
    }
}

/// Versions are told apart by their first two numbers.
fn major_minor(version: &str) -> String {
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
#[path = "card_tests.rs"]
mod tests;
