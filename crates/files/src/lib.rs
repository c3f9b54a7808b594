//! Private, durable and atomic files: the one place that knows modes, syncs and renames.
//!
//! [`write_atomic`] replaces a file: readers see the old or the new content, also after a loss of
//! power. [`create_folder`] and [`create_file`] set the mode themselves, whatever the umask is.
//! [`make_private`] takes the access of other users away from files that exist.
//! [`open_regular_file`] and its kin open files that a program may have replaced, and [`remove_tree`]
//! removes folders of any depth.

mod atomic;
mod private;
mod regular;
mod tree;

pub use atomic::{
    is_temporary, publish, sync_folder, sync_name, temporary_path, write_atomic, write_bytes,
    write_new, write_temporary,
};
pub use private::{
    FileAccess, PrivacyError, create_file, create_folder, create_private_folders, make_private,
    open_or_create,
};
pub use regular::{
    RegularFileError, open_beneath, open_named_file, open_regular_file,
    open_regular_file_for_update, open_regular_file_for_writing, read_named_file,
    read_regular_file, remove_beneath,
};
pub use tree::{remove_tree, remove_tree_until};
