//! What the linter says of a running server: of its own launch, or of the launch file that the user
//! gives.

use schemas::{diagnostic::Severity, secrets, text::Source};
use tuner::running::{Connected, record::ServerFinding};

use super::{check_alone, server::LintedServer};

/// Checks the launch of a server with the linter's default settings, and compares a launch file
/// with what runs.
///
/// # Errors
/// When a settings file of the linter is wrong.
pub fn check(connected: &Connected, launch: Option<&Source>) -> anyhow::Result<CheckedServer> {
    let running = LintedServer::new(&connected.server.url, connected.info.clone());
    let source = match launch {
        Some(source) => source.clone(),
        None => match running.source() {
            Ok(source) => source,
            Err(_) => {
                let unchecked = "it does not tell its launch; give it by --launch FILE".to_owned();
                return Ok(CheckedServer { findings: Vec::new(), unchecked: Some(unchecked), differing: Vec::new() });
            }
        },
    };
    let checked = check_alone(source, running.runs())?;
    let findings = checked.diagnostics.iter().map(|finding| ServerFinding {
        severity: match finding.severity {
            Severity::Error => "error".into(),
            Severity::Warning => "warning".into(),
            Severity::Info => "info".into(),
        },
        code: finding.code.to_owned(),
        message: secrets::masked_text(&finding.message),
    });
    let findings = findings.collect();
    let differing = match launch {
        Some(_) => running.differing(checked),
        None => Vec::new(),
    };
    Ok(CheckedServer { findings, unchecked: None, differing })
}

/// The result of a check.
pub struct CheckedServer {
    /// What the linter found.
    pub findings: Vec<ServerFinding>,
    /// Why nothing was checked; `None` if it was.
    pub unchecked: Option<String>,
    /// Where the launch file differs from what runs, one line each.
    pub differing: Vec<String>,
}
