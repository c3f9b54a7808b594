//! Agents that cannot be started.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use polity_engine::driver::{ProgramPreparation, RunOverrides};
use polity_model::failure::ErrorCategory;
use serde_json::json;

use super::fixture::{CliFixture, agent, failure};

#[tokio::test]
async fn start_errors_name_the_cause_before_and_during_a_run() {
    let fixture = CliFixture::new();
    fs::write(fixture.path("plain"), "not for execution").unwrap();
    fs::create_dir(fixture.path("folder")).unwrap();
    for (program, more, named) in [
        ("no-such-program", json!({}), "no-such-program"),
        ("./no-such-program", json!({}), "no-such-program"),
        ("./plain", json!({}), "plain"),
        ("./folder", json!({}), "folder"),
        ("sh", json!({"working_directory": "nowhere"}), "nowhere"),
        ("sh", json!({"working_directory": "plain"}), "plain"),
    ] {
        let agent = agent(program, &[], &more);
        let refused = fixture.driver.ready(&agent, &RunOverrides::default()).unwrap_err();
        assert!(refused.message.contains(named), "{refused:?}");
        let outcome = fixture.run(&agent, "").await;
        let failure = failure(&outcome);
        assert_eq!(failure.category, ErrorCategory::Permanent, "{failure}");
        assert!(failure.message.contains(named), "{failure}");
        assert_eq!(outcome.report.process_id, None);
    }
}

#[tokio::test]
async fn reports_exec_errors() {
    let fixture = CliFixture::new();
    fs::write(fixture.path("broken"), "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(fixture.path("broken"), fs::Permissions::from_mode(0o755)).unwrap();
    let agent = agent("./broken", &[], &json!({}));
    let outcome = fixture.run(&agent, "").await;
    assert!(failure(&outcome).message.contains("broken"), "{:?}", outcome.end);
    assert_eq!(outcome.report.exit, None);
}
