//! Telemetry settings from the `OTEL_*` environment variables.

use polity_drivers::EnvSource;
use polity_drivers::http::Url;

/// The common endpoint; traces go to a path below it.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// The endpoint of traces, used unchanged.
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

/// The path of traces below the common address.
const TRACES_PATH: &str = "v1/traces";

/// The supported protocol.
const PROTOCOL: &str = "http/protobuf";

/// The receiver and the service name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TelemetrySettings {
    /// The URL to which batches are posted.
    pub(super) endpoint: Url,
    /// The service name, if set.
    pub(super) service_name: Option<String>,
}

/// Invalid telemetry settings.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TelemetrySettingsError {
    /// The URL is not valid. It is not repeated, because it may contain a password.
    #[error("{0} is not an address that starts with http:// or https://")]
    Address(&'static str),
    /// The protocol is not supported.
    #[error(
        "{variable} asks for {protocol}, and only {PROTOCOL} is supported: unset it, and name a \
         receiver of OTLP over HTTP, usually on port 4318"
    )]
    Protocol {
        /// The variable.
        variable: &'static str,
        /// Its value.
        protocol: String,
    },
}

impl TelemetrySettings {
    /// Reads the environment. None if no endpoint is set.
    pub(super) fn read(environment: &EnvSource) -> Result<Option<Self>, TelemetrySettingsError> {
        let says = |name, word: &str| {
            environment.get(name).is_some_and(|value| value.eq_ignore_ascii_case(word))
        };
        if says("OTEL_SDK_DISABLED", "true") || says("OTEL_TRACES_EXPORTER", "none") {
            return Ok(None);
        }
        let endpoint = match (environment.get(TRACES_ENDPOINT), environment.get(ENDPOINT)) {
            (Some(own), _) => {
                address(&own).ok_or(TelemetrySettingsError::Address(TRACES_ENDPOINT))?
            }
            (None, Some(common)) => {
                let below = address(&common).and_then(|common| below(common, TRACES_PATH));
                below.ok_or(TelemetrySettingsError::Address(ENDPOINT))?
            }
            (None, None) => return Ok(None),
        };
        for variable in ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"] {
            match environment.get(variable) {
                None => {}
                Some(protocol) if protocol == PROTOCOL => break,
                Some(protocol) => {
                    return Err(TelemetrySettingsError::Protocol { variable, protocol });
                }
            }
        }
        Ok(Some(Self { endpoint, service_name: environment.get("OTEL_SERVICE_NAME") }))
    }
}

fn address(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    (matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(url)
}

fn below(mut url: Url, path: &str) -> Option<Url> {
    url.path_segments_mut().ok()?.pop_if_empty().extend(path.split('/'));
    Some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        variables: &'static [(&'static str, &'static str)],
    ) -> Result<Option<TelemetrySettings>, TelemetrySettingsError> {
        TelemetrySettings::read(&EnvSource::new(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name)?;
            Some(found.1.to_owned())
        }))
    }

    fn endpoint(variables: &'static [(&'static str, &'static str)]) -> Option<String> {
        read(variables).unwrap().map(|settings| settings.endpoint.to_string())
    }

    #[test]
    fn no_endpoint_disables_the_export() {
        assert_eq!(endpoint(&[]), None);
        assert_eq!(endpoint(&[(ENDPOINT, " ")]), None);
        assert_eq!(endpoint(&[(ENDPOINT, "http://h:4318"), ("OTEL_SDK_DISABLED", "True")]), None);
        assert_eq!(endpoint(&[(ENDPOINT, "http://h"), ("OTEL_TRACES_EXPORTER", "none")]), None);
    }

    #[test]
    fn traces_path_is_added_only_to_the_common_endpoint() {
        for common in ["http://h:4318", "http://h:4318/"] {
            let settings = TelemetrySettings::read(&EnvSource::new(move |name| {
                (name == ENDPOINT).then(|| common.to_owned())
            }));
            let endpoint = settings.unwrap().unwrap().endpoint;
            assert_eq!(endpoint.as_str(), "http://h:4318/v1/traces");
        }
        let below = endpoint(&[(ENDPOINT, "https://h/otlp/")]);
        assert_eq!(below.as_deref(), Some("https://h/otlp/v1/traces"));
        let own = endpoint(&[(ENDPOINT, "http://h:1"), (TRACES_ENDPOINT, "http://h:2/t")]);
        assert_eq!(own.as_deref(), Some("http://h:2/t"));
    }

    #[test]
    fn settings_errors_contain_no_secrets() {
        for text in ["localhost:4318", "h", "grpc://h:4317", "user:secret@h", "http://"] {
            let settings = TelemetrySettings::read(&EnvSource::new(move |name| {
                (name == ENDPOINT).then(|| text.to_owned())
            }));
            let error = settings.unwrap_err();
            assert_eq!(error, TelemetrySettingsError::Address(ENDPOINT), "{text}");
            assert!(!error.to_string().contains("secret"));
        }
        let error = read(&[(ENDPOINT, "http://h:4317"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
        assert!(error.unwrap_err().to_string().contains("asks for grpc"));
        let own = read(&[
            (ENDPOINT, "http://h:4318"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ]);
        assert!(own.unwrap().is_some(), "what is said of traces goes before what is said of all");
    }
}
