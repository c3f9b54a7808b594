//! A home that a server process serves, for the soak test and the benches.

mod connection;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

pub(crate) use connection::{Answer, Connection, SoakEventReader};

/// The longest time until a server answers, also on a busy machine.
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// The pause between two looks at a server that starts.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The local token and the address of a running server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SoakServerAddress {
    /// Host and port.
    pub(crate) host: String,
    /// The token.
    pub(crate) token: String,
}

/// A server process of a home. It is killed when dropped.
pub(crate) struct ServedHome {
    child: Child,
    /// Where it listens.
    pub(crate) address: SoakServerAddress,
}

impl ServedHome {
    /// Starts a server on a free port and waits until it answers. Its log goes to a file.
    pub(crate) fn start(polity: &Path, home: &Path) -> Result<Self> {
        let log = fs::OpenOptions::new().create(true).append(true).open(home.join("server.log"))?;
        let child = Command::new(polity)
            .arg("--home")
            .arg(home)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", polity.display()))?;
        let address = SoakServerAddress { host: String::new(), token: String::new() };
        let mut served = Self { child, address };
        served.address = served.wait_until_ready(home)?;
        Ok(served)
    }

    fn wait_until_ready(&mut self, home: &Path) -> Result<SoakServerAddress> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                let log = fs::read_to_string(home.join("server.log")).unwrap_or_default();
                bail!("the server has ended ({status}): {log}");
            }
            if let Some(address) = self.published(home)? {
                let mut connection = Connection::open(&address)?;
                let answer = connection.get("/readyz")?;
                ensure!(answer.status == 200, "the server is not ready: {}", answer.body);
                return Ok(address);
            }
            ensure!(began.elapsed() < START_TIMEOUT, "the server does not answer");
            thread::sleep(LOOK_INTERVAL);
        }
    }

    /// The address that this process has published; a killed server leaves its own.
    fn published(&self, home: &Path) -> Result<Option<SoakServerAddress>> {
        let Ok(text) = fs::read_to_string(home.join("data/server.json")) else { return Ok(None) };
        let Ok(file) = serde_json::from_str::<Value>(&text) else { return Ok(None) };
        if file["pid"] != self.child.id() {
            return Ok(None);
        }
        let url = file["url"].as_str().context("server.json has no url")?;
        let token = fs::read_to_string(home.join("data/server.token"))?;
        let host = url.trim_start_matches("http://").to_owned();
        Ok(Some(SoakServerAddress { host, token: token.trim().to_owned() }))
    }

    /// The process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the server without a warning.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Stops the server and waits for its end.
    pub(crate) fn stop(mut self) -> Result<()> {
        let mut kill = Command::new("kill");
        let sent = kill.args(["-TERM", &self.pid().to_string()]).status()?;
        ensure!(sent.success(), "the server cannot be stopped");
        let status = self.child.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

impl Drop for ServedHome {
    fn drop(&mut self) {
        // A server that has ended cannot be killed, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The newest position in the journal of a served home.
pub(crate) fn newest_position(address: &SoakServerAddress) -> Result<u64> {
    let metrics = Connection::open(address)?.get("/metrics")?.body;
    metrics
        .lines()
        .find_map(|line| line.strip_prefix("polity_journal_position ")?.parse().ok())
        .context("the metrics have no polity_journal_position")
}

/// The resident memory of a process, in kilobytes.
pub(crate) fn memory_kb(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok())
        .context("the process status has no VmRSS line")
}

/// The CPU time of a process and its threads.
pub(crate) fn cpu_time(pid: u32) -> Result<Duration> {
    /// The kernel reports hundredths of a second to programs on all platforms.
    const TICKS_PER_SECOND: u64 = 100;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name may have spaces; the fields after its bracket are plain.
    let fields = stat.rsplit_once(") ").context("the process has no stat line")?.1;
    let ticks = |index| fields.split(' ').nth(index).and_then(|field| field.parse::<u64>().ok());
    let (user, system) = ticks(11).zip(ticks(12)).context("the stat line is too short")?;
    Ok(Duration::from_millis((user + system) * 1000 / TICKS_PER_SECOND))
}

/// Writes the files of a home.
pub(crate) fn write_home(home: &Path, files: &[(&str, &str)]) -> Result<()> {
    for (path, text) in files {
        let path: PathBuf = home.join(path);
        fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
        fs::write(path, text)?;
    }
    Ok(())
}
