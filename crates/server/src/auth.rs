//! Authentication: tokens, their scopes, and slowing down of failed attempts.

mod caller;
mod rate_limit;
mod throttle;
mod token;
mod token_file;
mod token_set;

pub(crate) use caller::{ApiCaller, RequestToken, authenticate};
pub(crate) use rate_limit::CallerRates;
pub(crate) use throttle::FailureThrottle;
pub use token::{NewToken, Scope, TokenRecord, random_secret};
pub(crate) use token_file::make_local_token;
pub use token_file::{LOCAL_TOKEN_FILE, TokenFile, TokenFileError, read_local_token};
pub(crate) use token_set::{LOCAL_GRANT, TOKEN_CHARACTERS_MIN, TokenGrant, TokenSet};
