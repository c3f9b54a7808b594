//! The check of addresses that others choose: requests reach public addresses only.
//!
//! The check happens when a connection is made, on the addresses that a name resolves to at that
//! moment. A name that changes its addresses later is checked again. Proxies are not used, since they
//! would resolve names themselves.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Url};

use super::plain_client;

/// An address that is not public.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{host} has the address {address}, which is {kind}")]
pub struct RefusedAddress {
    /// The host as it was written.
    pub host: String,
    /// The address.
    pub address: IpAddr,
    /// The kind of the address.
    pub kind: &'static str,
}

/// Builds a client for one URL. It reaches public addresses only, unless `allow_private` lists the
/// host of the URL.
pub fn checked_client(url: &Url, allow_private: &[&str]) -> Result<Client, CheckedClientError> {
    let is_secure = url.scheme() == "https";
    let host = url.host_str().unwrap_or_default();
    let bare = bare_host(host);
    if allow_private.iter().any(|name| bare_host(name).eq_ignore_ascii_case(bare)) {
        return Ok(plain_client(is_secure).no_proxy().build()?);
    }
    // A number is not resolved, so it is checked here. The URL parser has normalised other spellings.
    if let Ok(address) = bare.parse::<IpAddr>() {
        expect_public(host, address)?;
    }
    Ok(plain_client(is_secure).no_proxy().dns_resolver(PublicResolver).build()?)
}

/// The reason why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum CheckedClientError {
    /// The URL has a number that is not public.
    #[error(transparent)]
    Refused(#[from] RefusedAddress),
    /// HTTP cannot be set up.
    #[error(transparent)]
    Setup(#[from] reqwest::Error),
}

fn bare_host(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

fn expect_public(host: &str, address: IpAddr) -> Result<(), RefusedAddress> {
    match private_kind(address) {
        Some(kind) => Err(RefusedAddress { host: host.to_owned(), address, kind }),
        None => Ok(()),
    }
}

/// A resolver that refuses names with an address that is not public.
#[derive(Debug, Clone, Copy)]
struct PublicResolver;

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let addresses: Vec<SocketAddr> = found.collect();
            for address in &addresses {
                expect_public(name.as_str(), address.ip())?;
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// The kind of an address that is not public. None if it is.
pub fn private_kind(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => private_kind_v4(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => private_kind_v4(mapped),
            None => private_kind_v6(address),
        },
    }
}

fn private_kind_v4(address: Ipv4Addr) -> Option<&'static str> {
    let is_in = |network: [u8; 4], bits: u32| {
        let mask = u32::MAX << (32 - bits);
        u32::from(address) & mask == u32::from(Ipv4Addr::from(network))
    };
    [
        ([0, 0, 0, 0], 8, "this network"),
        ([10, 0, 0, 0], 8, "private"),
        ([100, 64, 0, 0], 10, "shared by a carrier"),
        ([127, 0, 0, 0], 8, "loopback"),
        ([169, 254, 0, 0], 16, "link-local"),
        ([172, 16, 0, 0], 12, "private"),
        ([192, 0, 0, 0], 24, "reserved"),
        ([192, 0, 2, 0], 24, "for documentation"),
        ([192, 88, 99, 0], 24, "a relay"),
        ([192, 168, 0, 0], 16, "private"),
        ([198, 18, 0, 0], 15, "for benchmarks"),
        ([198, 51, 100, 0], 24, "for documentation"),
        ([203, 0, 113, 0], 24, "for documentation"),
        ([224, 0, 0, 0], 4, "multicast"),
        ([240, 0, 0, 0], 4, "reserved"),
    ]
    .into_iter()
    .find_map(|(network, bits, kind)| is_in(network, bits).then_some(kind))
}

fn private_kind_v6(address: Ipv6Addr) -> Option<&'static str> {
    let is_in = |network: [u16; 8], bits: u32| {
        let mask = u128::MAX << (128 - bits);
        u128::from(address) & mask == u128::from(Ipv6Addr::from(network))
    };
    let listed = [
        ([0, 0, 0, 0, 0, 0, 0, 1], 128, "loopback"),
        ([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96, "a translated IPv4 address"),
        ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, "a translated IPv4 address"),
        ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, "private"),
        ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "link-local"),
        ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "multicast"),
        ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, "reserved"),
        ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, "for documentation"),
        ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, "a relayed IPv4 address"),
        ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "for documentation"),
    ]
    .into_iter()
    .find_map(|(network, bits, kind)| is_in(network, bits).then_some(kind));
    // Public addresses are in 2000::/3.
    let is_global = is_in([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);
    listed.or((!is_global).then_some("reserved"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssrf_addresses_are_refused() {
        for (url, is_public) in [
            ("http://127.0.0.1/", false),
            ("http://127.8.8.8/", false),
            ("http://0.0.0.0/", false),
            ("http://10.1.2.3/", false),
            ("http://172.16.0.1/", false),
            ("http://172.32.0.1/", true),
            ("http://192.168.1.1/", false),
            ("http://169.254.169.254/latest/meta-data", false),
            ("http://100.64.0.1/", false),
            ("http://100.128.0.1/", true),
            ("http://224.0.0.1/", false),
            ("http://255.255.255.255/", false),
            ("http://2130706433/", false),
            ("http://0x7f.1/", false),
            ("http://0177.0.0.1/", false),
            ("http://127.1/", false),
            ("http://[::1]/", false),
            ("http://[::]/", false),
            ("http://[::ffff:127.0.0.1]/", false),
            ("http://[::ffff:8.8.8.8]/", true),
            ("http://[::127.0.0.1]/", false),
            ("http://[64:ff9b::7f00:1]/", false),
            ("http://[64:ff9b:1::7f00:1]/", false),
            ("http://[2002:7f00:1::]/", false),
            ("http://[2001:0:7f00:1::]/", false),
            ("http://[fc00::1]/", false),
            ("http://[fd12:3456::1]/", false),
            ("http://[fe80::1]/", false),
            ("http://[fec0::1]/", false),
            ("http://[ff02::1]/", false),
            ("http://[2606:4700::1111]/", true),
            ("http://8.8.8.8/", true),
        ] {
            let url = Url::parse(url).unwrap();
            let refused = matches!(checked_client(&url, &[]), Err(CheckedClientError::Refused(_)));
            assert_eq!(!refused, is_public, "{url}");
        }
    }

    #[test]
    fn private_host_is_allowed_by_its_name_only() {
        let allows = |url: &str, name: &str| checked_client(&url.parse().unwrap(), &[name]).is_ok();
        assert!(allows("http://127.0.0.1:9/", "127.0.0.1"));
        assert!(allows("http://[::1]:9/", "::1"));
        assert!(!allows("http://127.0.0.1:9/", "127.0.0.2"));
        assert!(!allows("http://127.0.0.1:9/", "localhost"));
    }

    #[tokio::test]
    async fn name_with_a_private_address_is_refused_when_it_is_dialled() {
        let name: Name = "localhost".parse().unwrap();
        let error = PublicResolver.resolve(name).await.err().unwrap();
        assert_eq!(error.downcast_ref::<RefusedAddress>().unwrap().kind, "loopback");
    }
}
