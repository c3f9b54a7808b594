//! Secrets for every built-in rule, composed here so that no scanner takes them for real ones.

use std::sync::Arc;

use super::mask;
use crate::rules::{RuleSearch, built_in_rules};
use crate::scan::TextExtent;

/// A text with a secret: the rule that finds it, the text before it, the secret and the text after.
pub(super) struct RuleCase {
    pub(super) rule: &'static str,
    pub(super) before: String,
    pub(super) secret: String,
    pub(super) after: &'static str,
}

impl RuleCase {
    pub(super) fn text(&self) -> String {
        format!("{}{}{}", self.before, self.secret, self.after)
    }
}

fn cycle(alphabet: &str, length: usize) -> String {
    alphabet.chars().cycle().take(length).collect()
}

/// Letters and digits, as in most tokens.
fn mixed(length: usize) -> String {
    cycle("aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0", length)
}

fn hex(length: usize) -> String {
    cycle("0f1e2d3c4b5a6978", length)
}

fn capitals(length: usize) -> String {
    cycle("Q7X2M9KD4TZR8WJ5", length)
}

pub(super) fn rule_cases() -> Vec<RuleCase> {
    let mut cases = token_cases();
    cases.extend(placed_cases());
    cases
}

/// Tokens that are recognised by their own form.
fn token_cases() -> Vec<RuleCase> {
    let mut cases = Vec::new();
    for (rule, prefix, body) in [
        ("sk-key", "sk-", mixed(48)),
        ("sk-key", "sk-ant-api03-", mixed(80)),
        ("groq", "gsk_", mixed(52)),
        ("xai", "xai-", mixed(80)),
        ("google-api-key", "AIza", mixed(35)),
        ("replicate", "r8_", mixed(37)),
        ("hugging-face", "hf_", mixed(34)),
        ("perplexity", "pplx-", mixed(48)),
        ("cerebras", "csk-", cycle("a1b2c3d4e5f6", 48)),
        ("nvidia", "nvapi-", mixed(64)),
        ("langsmith", "lsv2_pt_", format!("{}_{}", hex(32), hex(10))),
        ("pinecone", "pcsk_", format!("{}_{}", mixed(6), mixed(60))),
        ("aws-access-key-id", "AKIA", capitals(16)),
        ("google-oauth-token", "ya29.", mixed(60)),
        ("google-oauth-secret", "GOCSPX-", mixed(28)),
        ("azure-client-secret", "abC8Q~", mixed(34)),
        ("azure-ai-key", "", format!("{}JQQJ9{}", mixed(52), mixed(27))),
        ("azure-devops", "", format!("{}AZDO{}", mixed(76), mixed(4))),
        ("digitalocean", "dop_v1_", hex(64)),
        ("databricks", "dapi", hex(32)),
        ("vault", "hvs.", mixed(95)),
        ("vault", "hvb.", mixed(140)),
        ("terraform", "", format!("{}.atlasv1.{}", mixed(14), mixed(64))),
        ("doppler", "dp.pt.", mixed(43)),
        ("supabase", "sbp_", hex(40)),
        ("tailscale", "tskey-auth-", mixed(30)),
        ("github", "ghp_", mixed(36)),
        ("github-fine-grained", "github_pat_", mixed(82)),
        ("gitlab", "glpat-", mixed(20)),
        ("npm", "npm_", mixed(36)),
        ("pypi", "pypi-", mixed(80)),
        ("docker-token", "dckr_pat_", mixed(27)),
        ("stripe", "sk_live_", mixed(24)),
        ("stripe-webhook", "whsec_", mixed(32)),
        ("sendgrid", "SG.", format!("{}.{}", mixed(22), mixed(43))),
        ("brevo", "xkeysib-", format!("{}-{}", hex(64), mixed(16))),
        ("slack", "xoxb-", format!("123456789012-{}", mixed(24))),
        ("slack-app", "xapp-", format!("1-A0123456789-{}", hex(40))),
        ("telegram", "", format!("123456789:AA{}", mixed(33))),
        ("linear", "lin_api_", mixed(40)),
        ("notion", "ntn_", mixed(46)),
        ("notion-secret", "secret_", mixed(43)),
        ("atlassian", "ATATT3", mixed(180)),
        ("grafana", "glsa_", format!("{}_{}", mixed(32), hex(8))),
        ("sentry", "sntrys_", mixed(80)),
        ("postman", "PMAK-", format!("{}-{}", hex(24), hex(34))),
        ("figma", "figd_", mixed(40)),
        ("age", "AGE-SECRET-KEY-", format!("1{}", capitals(58))),
    ] {
        for (around, after) in [("", ""), ("the key \"", "\" is old"), ("[\\\"key:\\n", "\\n\\\"]")]
        {
            let secret = format!("{prefix}{body}");
            cases.push(RuleCase { rule, before: around.to_owned(), secret, after });
        }
    }
    cases
}

/// Secrets that are recognised by the text around them.
fn placed_cases() -> Vec<RuleCase> {
    let cases = [
        ("azure-account-key", "AccountName=a;AccountKey=", mixed(86) + "==", ";EndpointSuffix=x"),
        ("azure-access-key", "Endpoint=sb://a/;SharedAccessKey=", mixed(43) + "=", ""),
        (
            "azure-shared-access-signature",
            "https://a/b?sv=2024&sig=",
            mixed(42) + "%2Fa%3D",
            "&se=1",
        ),
        ("docker-auth", r#"{"auths": {"r.io": {"auth": ""#, mixed(24) + "==", "\"}}}"),
        ("docker-auth", r#"{\"auth\": \""#, mixed(24), "\\\"}"),
        (
            "slack-webhook",
            "https://hooks.slack.com/services/",
            format!("T{}/B{}/{}", capitals(8), capitals(8), mixed(24)),
            " is it",
        ),
        ("discord-webhook", "https://discord.com/api/webhooks/123456789012345678/", mixed(68), ""),
        (
            "telegram",
            "https://api.telegram.org/bot",
            format!("1234567890:AA{}", mixed(33)),
            "/getMe",
        ),
        (
            "netrc",
            "machine example.org login ada password ",
            "correcthorse".to_owned(),
            " account x",
        ),
        ("vault-old", "token                ", format!("s.{}", mixed(24)), ""),
        ("vault-old", "X-Vault-Token: ", format!("s.{}", mixed(24)), " was sent"),
        ("netrc-password", "  password ", "correct7horse".to_owned(), ""),
        ("cookie", "Cookie: ", format!("sid={}; lang=en", mixed(24)), ""),
        ("cookie", "< Set-Cookie: ", format!("session={}; Path=/; HttpOnly", mixed(24)), ""),
        ("cookie", r#"{"Cookie": ""#, format!("sid={}", mixed(24)), "\", \"accept\": \"*/*\"}"),
        ("curl-user", "$ curl -sS -u ada:", "hunter2".to_owned(), " https://example.org"),
        ("curl-user", "curl --user 'ada:", "hunter2".to_owned(), "' https://example.org"),
        (
            "curl-user",
            r#"["curl","-X","POST","-u","ada:"#,
            "hunter2".to_owned(),
            "\",\"https://example.org\"]",
        ),
    ];
    let case = |(rule, before, secret, after): (&'static str, &str, String, &'static str)| {
        RuleCase { rule, before: before.to_owned(), secret, after }
    };
    cases.into_iter().map(case).collect()
}

#[test]
fn every_built_in_rule_finds_its_secrets() {
    let mask = mask();
    let cases = rule_cases();
    for rule in built_in_rules() {
        let search = RuleSearch::new(vec![Arc::clone(rule)], Vec::new()).unwrap();
        let own: Vec<_> = cases.iter().filter(|case| case.rule == rule.id()).collect();
        assert!(!own.is_empty(), "{} has no case", rule.id());
        for case in own {
            let text = case.text();
            let mut spans = Vec::new();
            search
                .find_all(text.as_bytes(), TextExtent::Complete, |found| spans.extend(found.span));
            let found: Vec<_> = spans.iter().map(|span| &text[span.start..span.end]).collect();
            assert_eq!(found, [case.secret.as_str()], "{}: {text}", rule.id());
            let masked = mask.mask_text(&text);
            assert!(!masked.contains(&case.secret), "{masked}");
            assert_eq!(mask.mask_text(&masked), masked, "{text}");
        }
    }
    let is_known = |case: &RuleCase| built_in_rules().iter().any(|rule| rule.id() == case.rule);
    assert!(cases.iter().all(is_known));
}

#[test]
fn names_of_methods_are_no_old_vault_tokens() {
    let mask = mask();
    for text in [
        "the token is checked in s.handleConnectionTimeouts now",
        "vault: s.validateRequestHeaderV2a1 is a method",
        "token s.abcdefghijklmnopqrstuvw1",
    ] {
        assert_eq!(mask.mask_text(text), text);
    }
}
