//! The dedup key of a request: a keyed digest.
//!
//! The key is a file of the home, outside of backups. Without it, nobody who reads the journal can
//! guess the request by hashing candidates.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::OnceLock;

use polity_engine::driver::RunIdentity;
use polity_engine::entropy::{EntropySource, SystemEntropy};
use polity_files::{
    FileAccess, create_file, create_private_folders, read_regular_file, sync_folder,
};
use polity_model::digest::Digest;
use serde_json::json;

const KEY_FILE: &str = "request.key";

/// The maximum size of the key file. Polity writes a shorter one.
const KEY_BYTES_MAX: u64 = 1 << 10;

#[derive(Debug)]
pub(crate) struct RequestDigester {
    data: PathBuf,
    key: OnceLock<Vec<u8>>,
}

impl RequestDigester {
    pub(crate) fn new(data: PathBuf) -> Self {
        Self { data, key: OnceLock::new() }
    }

    /// The digest of a request. Equal requests have equal digests.
    pub(crate) fn digest(&self, identity: &RunIdentity<'_>) -> io::Result<Digest> {
        let RunIdentity { agent, input, parameters, overrides } = identity;
        let (folder, envs) = (&overrides.working_directory, &overrides.envs);
        let request = json!([agent.digest(), input, parameters, folder, envs]).to_string();
        let mut text = self.key()?.to_vec();
        text.extend_from_slice(request.as_bytes());
        Ok(Digest::of(&text))
    }

    fn key(&self) -> io::Result<&[u8]> {
        if let Some(key) = self.key.get() {
            return Ok(key);
        }
        let path = self.data.join(KEY_FILE);
        let read = || read_regular_file(&path, KEY_BYTES_MAX).map_err(io::Error::from);
        let key = match read() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.create_key()?;
                read()?
            }
            read => read?,
        };
        Ok(self.key.get_or_init(|| key))
    }

    /// Creates the key file atomically, unless another process was faster.
    fn create_key(&self) -> io::Result<()> {
        create_private_folders(&self.data)?;
        let seed = SystemEntropy.seed();
        let own = self.data.join(format!("{KEY_FILE}.{:x}", u128::from_ne_bytes(seed)));
        let mut file = create_file(&own, FileAccess::Private)?;
        let written = file.write_all(&SystemEntropy.seed()).and_then(|()| file.sync_all());
        let linked = written.and_then(|()| fs::hard_link(&own, self.data.join(KEY_FILE)));
        fs::remove_file(&own)?;
        match linked.and_then(|()| sync_folder(&self.data)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use polity_definition::AgentDefinition;
    use polity_engine::driver::RunOverrides;
    use serde_json::{Map, Value};

    use super::*;

    fn digest_of(digester: &RequestDigester, input: &str, params: &Value, token: &str) -> Digest {
        let agent = r#"{"kind": "cli", "name": "coder", "executable_path": "coder"}"#;
        let agent = AgentDefinition::from_canonical(agent).unwrap();
        let envs = [("TOKEN".to_owned(), token.to_owned())].into();
        let overrides = RunOverrides { working_directory: Some("/work".into()), envs };
        let parameters: Map<_, _> = params.as_object().unwrap().clone();
        let identity =
            RunIdentity { agent: &agent, input, parameters: &parameters, overrides: &overrides };
        digester.digest(&identity).unwrap()
    }

    #[test]
    fn only_identical_requests_share_a_digest() {
        let folder = tempfile::tempdir().unwrap();
        let digester = |name: &str| RequestDigester::new(folder.path().join(name));
        let (ours, theirs, another) = (digester("a"), digester("a"), digester("b"));
        let first = digest_of(&ours, "do it", &json!({"a": 1}), "t");
        assert_eq!(digest_of(&theirs, "do it", &json!({"a": 1}), "t"), first);
        for other in [
            digest_of(&ours, "do it.", &json!({"a": 1}), "t"),
            digest_of(&ours, "do it", &json!({"a": "1"}), "t"),
            digest_of(&ours, "do it", &json!({"a": 1}), "u"),
            digest_of(&another, "do it", &json!({"a": 1}), "t"),
        ] {
            assert_ne!(other, first);
        }
        let mode = fs::metadata(folder.path().join("a").join(KEY_FILE)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path().join("a")).unwrap().count(), 1);
    }
}
