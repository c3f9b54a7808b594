//! The users and groups of this machine by name, for messages.

use std::fmt;
use std::path::Path;

use polity_files::read_named_file;

/// The most bytes of a database of accounts that are read.
const ACCOUNTS_BYTES_MAX: u64 = 1 << 20;

/// A user or a group, with its name if this machine has one for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountName {
    id: u32,
    label: &'static str,
    name: Option<String>,
}

impl AccountName {
    /// The user with this number.
    pub fn of_user(id: u32) -> Self {
        Self { id, label: "uid", name: find_name(Path::new("/etc/passwd"), id) }
    }

    /// The group with this number.
    pub fn of_group(id: u32) -> Self {
        Self { id, label: "gid", name: find_name(Path::new("/etc/group"), id) }
    }
}

impl fmt::Display for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, label, name } = self;
        match name {
            Some(name) => write!(f, "{name}, {label} {id}"),
            None => write!(f, "{label} {id}"),
        }
    }
}

/// The name of an account. The number is enough for a message if the file cannot be read.
fn find_name(database: &Path, id: u32) -> Option<String> {
    let text = read_named_file(database, ACCOUNTS_BYTES_MAX).ok()?;
    parse_name(&String::from_utf8_lossy(&text), id)
}

/// The name of an account in lines of the form `name:password:number:...`.
fn parse_name(database: &str, id: u32) -> Option<String> {
    database.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let number: u32 = fields.nth(1)?.parse().ok()?;
        (number == id).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_number() {
        let database = "# local users\nroot:x:0:0:root:/root:/bin/sh\nbroken\n:x:7:\nada:x:1000:1000:Ada\n\
                        twin:x:1000:\n+::-1:\n";
        for (id, name) in [(0, Some("root")), (1000, Some("ada")), (7, None), (65534, None)] {
            assert_eq!(parse_name(database, id).as_deref(), name, "{id}");
        }
    }

    #[test]
    fn unknown_account_is_shown_by_its_number() {
        let unknown = AccountName { id: 12345, label: "uid", name: None };
        assert_eq!(unknown.to_string(), "uid 12345");
        let known = AccountName { id: 33, label: "gid", name: Some("www-data".to_owned()) };
        assert_eq!(known.to_string(), "www-data, gid 33");
    }
}
