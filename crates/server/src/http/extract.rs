//! Extractors whose refusals are problem details.

use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::problem::Problem;

/// The longest time in which a body arrives.
const BODY_TIME_MAX: Duration = Duration::from_mins(1);

/// The parameters of a path.
pub(crate) struct ApiPath<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for ApiPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(path)) => Ok(Self(path)),
            Err(rejection) => Err(Problem::not_found(rejection.body_text())),
        }
    }
}

/// The parameters of a query.
pub(crate) struct ApiQuery<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for ApiQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        let fields = form_urlencoded_fields(query);
        let decoder = serde::de::value::MapDeserializer::<_, serde::de::value::Error>::new(
            fields.into_iter(),
        );
        serde_path_to_error::deserialize(decoder).map(Self).map_err(|error| {
            let field = error.path().to_string();
            let problem = Problem::unprocessable(format!("the query is wrong: {}", error.inner()));
            if field == "." { problem } else { problem.field(field) }
        })
    }
}

/// The fields of a query, decoded.
fn form_urlencoded_fields(query: &str) -> Vec<(String, QueryText)> {
    let parse = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (decode(name), QueryText(decode(value)))
    };
    query.split('&').filter(|part| !part.is_empty()).map(parse).collect()
}

/// Decodes `%41` and `+`. Bytes that are not UTF-8 become replacement characters, which no value of a
/// query contains.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = |index: usize| bytes.get(index).and_then(|b| char::from(*b).to_digit(16));
        match (byte, hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                at += 3;
            }
            (b'+', _, _) => {
                out.push(b' ');
                at += 1;
            }
            (other, _, _) => {
                out.push(*other);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A value of a query, which may stand for a number or a truth value.
struct QueryText(String);

impl serde::de::IntoDeserializer<'_, serde::de::value::Error> for QueryText {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! parse_numbers {
    ($($method:ident => $visit:ident,)*) => {$(
        fn $method<V: serde::de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
            match self.0.parse() {
                Ok(value) => visitor.$visit(value),
                Err(_) => Err(serde::de::Error::custom(format!("\"{}\" is not a valid value", self.0))),
            }
        }
    )*};
}

impl<'de> serde::Deserializer<'de> for QueryText {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: serde::de::Visitor<'de>>(
        self,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_string(self.0)
    }

    fn deserialize_option<V: serde::de::Visitor<'de>>(
        self,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: serde::de::Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: serde::de::Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        use serde::de::IntoDeserializer as _;
        let text: serde::de::value::StringDeserializer<Self::Error> = self.0.into_deserializer();
        text.deserialize_enum(name, variants, visitor)
    }

    parse_numbers! {
        deserialize_bool => visit_bool,
        deserialize_u32 => visit_u32,
        deserialize_u64 => visit_u64,
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map struct identifier ignored_any
    }
}

/// A JSON body, with its bytes.
pub(crate) struct ApiJson<T> {
    pub(crate) value: T,
    pub(crate) bytes: Bytes,
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for ApiJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        expect_json(&request)?;
        let read = tokio::time::timeout(BODY_TIME_MAX, Bytes::from_request(request, state)).await;
        let read = read.map_err(|_| {
            let seconds = BODY_TIME_MAX.as_secs();
            let detail = format!("the body did not arrive within {seconds} seconds");
            Problem::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", detail)
        })?;
        let bytes = read.map_err(|rejection| {
            let status = rejection.status();
            let code = if status == StatusCode::PAYLOAD_TOO_LARGE {
                "body_too_large"
            } else {
                "bad_request"
            };
            Problem::new(status, code, rejection.body_text())
        })?;
        // A route without required fields accepts an empty body.
        let text = if bytes.is_empty() { b"{}" } else { &bytes[..] };
        // Without this check, a list would count as the fields in their order.
        if text.trim_ascii_start().first() == Some(&b'[') {
            return Err(Problem::unprocessable("the body is a list, and must be an object"));
        }
        let mut reader = serde_json::Deserializer::from_slice(text);
        let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let field = error.path().to_string();
            if error.inner().is_data() {
                let detail = error.inner().to_string();
                let missing = detail
                    .strip_prefix("missing field `")
                    .and_then(|rest| rest.split_once('`').map(|(name, _)| name.to_owned()));
                let named = missing.or((field != ".").then_some(field));
                let problem = Problem::unprocessable(detail);
                return match named {
                    Some(name) => problem.field(name),
                    None => problem,
                };
            }
            Problem::bad_request(format!("the body is not JSON: {}", error.inner()))
        })?;
        reader
            .end()
            .map_err(|error| Problem::bad_request(format!("the body is not JSON: {error}")))?;
        Ok(Self { value, bytes })
    }
}

/// Refuses bodies of other types: a browser may send those to any address without asking.
fn expect_json(request: &Request) -> Result<(), Problem> {
    let unsupported = |detail: String| {
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail)
    };
    let text =
        |name| request.headers().get(name).map(|value| value.to_str().unwrap_or("").to_owned());
    if let Some(encoding) = text(header::CONTENT_ENCODING).filter(|encoding| encoding != "identity")
    {
        return Err(unsupported(format!(
            "bodies with the encoding \"{encoding}\" are not accepted"
        )));
    }
    let kind = text(header::CONTENT_TYPE).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(unsupported(format!("the body has the type \"{kind}\""))
        .hint("send JSON with \"Content-Type: application/json\""))
}
