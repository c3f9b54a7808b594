//! The kernel: control groups, process descriptors, namespaces and Landlock.

use std::time::Duration;

use polity_drivers::cli::program_answers;

use super::{CheckSubject, DoctorCheck};
use crate::context::HostContext;
use crate::error::HostError;

const SUBJECT: CheckSubject = CheckSubject::Machine;

/// The longest wait for a program that creates a namespace.
const NAMESPACE_TIMEOUT: Duration = Duration::from_secs(5);

/// The namespaces that confinement uses, with the options of `unshare` that create them.
const NAMESPACES: [(&str, &[&str]); 3] = [
    ("user namespaces", &["--user", "true"]),
    ("mount namespaces", &["--user", "--map-root-user", "--mount", "true"]),
    ("network namespaces", &["--user", "--map-root-user", "--net", "true"]),
];

#[cfg(target_os = "linux")]
pub(super) async fn checks(context: &HostContext) -> Result<Vec<DoctorCheck>, HostError> {
    let mut checks = vec![kernel(), process_descriptors()];
    let (launcher, environment) = (context.launcher()?, context.environment().clone());
    let probes = tokio::task::spawn_blocking(move || {
        let mut checks = vec![control_groups()];
        for (name, args) in NAMESPACES {
            let answer =
                program_answers("unshare", args, &launcher, &environment, NAMESPACE_TIMEOUT);
            checks.push(namespace(name, answer));
        }
        checks
    });
    let probes = probes.await.map_err(|error| {
        HostError::io("check", std::path::Path::new("/sys/fs/cgroup"), std::io::Error::other(error))
    })?;
    checks.extend(probes);
    checks.push(landlock());
    Ok(checks)
}

#[cfg(not(target_os = "linux"))]
pub(super) async fn checks(_context: &HostContext) -> Result<Vec<DoctorCheck>, HostError> {
    let check = DoctorCheck::weaker(SUBJECT, "system", std::env::consts::OS)
        .meaning(
            "programs are ended by their process group; what leaves the group may outlive them, \
             and no program can be confined",
        )
        .fix("run Polity on Linux");
    Ok(vec![check])
}

#[cfg(target_os = "linux")]
fn kernel() -> DoctorCheck {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let machine = name.machine().to_string_lossy();
    DoctorCheck::ok(SUBJECT, "kernel", format!("Linux {release} ({machine})"))
}

#[cfg(target_os = "linux")]
fn process_descriptors() -> DoctorCheck {
    use rustix::process::{PidfdFlags, getpid, pidfd_open};
    match pidfd_open(getpid(), PidfdFlags::empty()) {
        Ok(_) => DoctorCheck::ok(SUBJECT, "pidfd", "available"),
        Err(error) => DoctorCheck::weaker(SUBJECT, "pidfd", format!("not available: {error}"))
            .meaning("processes are watched by their number, which the kernel may use again")
            .fix("use Linux 5.3 or newer, or permit pidfd_open in the container"),
    }
}

#[cfg(target_os = "linux")]
fn control_groups() -> DoctorCheck {
    use polity_drivers::process::{CgroupSupport, cgroup_support};
    const NAME: &str = "control groups";
    const FIX: &str = "run Polity as a service with `Delegate=yes`, as deploy/polity.service does, \
                       or with `systemd-run --user --scope -p Delegate=yes`";
    match cgroup_support() {
        CgroupSupport::Complete => {
            DoctorCheck::ok(SUBJECT, NAME, "delegated, with the controller pids")
        }
        CgroupSupport::WithoutLimits => {
            DoctorCheck::weaker(SUBJECT, NAME, "delegated, without the controller pids")
                .meaning("the number of processes of a run is checked at intervals only")
                .fix(FIX)
        }
        CgroupSupport::Missing => {
            DoctorCheck::weaker(SUBJECT, NAME, "this process may create none")
                .meaning(
                    "programs are still ended with all descendants, except processes that Polity \
                     may not signal or that fork faster than it ends them",
                )
                .fix(FIX)
        }
    }
}

/// The check of a kind of namespace: created, refused, or not tried.
fn namespace(name: &str, answer: Option<bool>) -> DoctorCheck {
    const MEANING: &str = "programs cannot be confined with namespaces";
    match answer {
        Some(true) => DoctorCheck::ok(SUBJECT, name, "permitted"),
        Some(false) => {
            DoctorCheck::weaker(SUBJECT, name, "refused by the system").meaning(MEANING).fix(
                "permit them: user.max_user_namespaces and kernel.unprivileged_userns_clone in \
                 sysctl, AppArmor's restriction of user namespaces, or the seccomp profile of the \
                 container",
            )
        }
        None => DoctorCheck::weaker(SUBJECT, name, "not tried: there is no program unshare")
            .meaning(MEANING)
            .fix("install util-linux"),
    }
}

#[cfg(target_os = "linux")]
fn landlock() -> DoctorCheck {
    const NAME: &str = "Landlock";
    match polity_drivers::process::landlock_version() {
        Some(version) => DoctorCheck::ok(SUBJECT, NAME, format!("version {version}")),
        None => DoctorCheck::weaker(SUBJECT, NAME, "not available")
            .meaning("file access of programs cannot be restricted without namespaces")
            .fix(
                "use Linux 5.13 or newer with `landlock` in the kernel's list of security modules",
            ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::CheckStatus;
    use super::*;

    #[test]
    fn refused_namespace_says_what_to_permit() {
        let refused = namespace("user namespaces", Some(false));
        assert_eq!(refused.status, CheckStatus::Weaker);
        assert!(refused.fix.is_some_and(|fix| fix.contains("user.max_user_namespaces")));
        let unknown = namespace("user namespaces", None);
        assert!(unknown.finding.contains("unshare"));
        assert_eq!(namespace("user namespaces", Some(true)).status, CheckStatus::Ok);
    }
}
