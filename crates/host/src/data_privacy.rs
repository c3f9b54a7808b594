//! The data folder is private to its user, whatever was there before.

use std::io::ErrorKind;

use polity_files::{PrivacyError, make_private};

use crate::account_name::AccountName;
use crate::context::HostContext;
use crate::error::HostError;
use crate::warning::HostWarning;

/// The folder of workspaces, whose files keep the modes of their origin. Nobody else reaches them,
/// because the folder itself is private.
const WORKSPACES: &str = "workspaces";

impl HostContext {
    /// Takes the access of other users away from `data/`, with a warning if there was some. Fails if
    /// the folder belongs to another user.
    pub fn protect_data(&self) -> Result<(), HostError> {
        let path = self.folder().data();
        match make_private(&path, &[WORKSPACES]) {
            Ok(0) => Ok(()),
            Ok(count) => {
                self.warn(HostWarning::OpenData { path, count });
                Ok(())
            }
            Err(PrivacyError::ForeignOwner { path, user }) => {
                Err(HostError::ForeignData { path, user: AccountName::of_user(user) })
            }
            Err(PrivacyError::WideLinkTarget) => Err(HostError::OpenDataLink { path }),
            // Nobody can change it there, and reading is harmless.
            Err(PrivacyError::Io(_, error)) if error.kind() == ErrorKind::ReadOnlyFilesystem => {
                Ok(())
            }
            Err(PrivacyError::Io(path, error)) => Err(HostError::io("protect", &path, error)),
        }
    }
}
