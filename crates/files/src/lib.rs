//! Private, durable and atomic files: the one place that knows modes, syncs and renames.
//!
//! [`write_atomic`] replaces a file: readers see the old or the new content, also after a loss of
//! power. [`create_folder`] and [`create_file`] set the mode themselves, whatever the umask is.
//! [`make_private`] takes the access of other users away from files that exist.

mod atomic;
mod private;

pub use atomic::{
    is_temporary, publish, sync_folder, sync_name, temporary_path, write_atomic, write_bytes,
    write_new, write_temporary,
};
pub use private::{
    FileAccess, PrivacyError, create_file, create_folder, create_private_folders, make_private,
    open_or_create,
};
