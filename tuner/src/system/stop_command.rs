//! The user's command that ends what a start command started: how it is run, and what its end says.
//!
//! It runs in the shell that also runs the start command, whose output is the server's log. Lines
//! of that log tell how it ended, so that a failure is not lost.

use std::time::Duration;

/// The lines of the log before the command, after its failure (with its exit code), and at its end.
const BEGINS: &str = "spectune: the stop command begins";
const FAILED: &str = "spectune: the stop command failed with code ";
const ENDED: &str = "spectune: the stop command has ended";
/// Largest part of its output that is shown, in characters.
const LONGEST_OUTPUT: usize = 600;

/// A script that runs a start command, and a stop command when it is terminated or the start fails.
pub fn script(start: &str, stop: &str) -> String {
    // A start command may return before the server is ready.
    format!(
        "stop() {{ trap '' TERM INT; (\n{stop}\n); ended=$?; [ $ended -eq 0 ] || echo \"{FAILED}$ended\"; }}\n\
         trap 'echo \"{BEGINS}\"; stop; echo \"{ENDED}\"; exit 0' TERM INT\n\
         {start} &\n\
         wait $!; code=$?\n\
         if [ $code -ne 0 ]; then stop; exit $code; fi\n\
         while :; do sleep 1 & wait $!; done"
    )
}

/// Whether a command runs such a script.
pub fn is_in(command: &[String]) -> bool {
    command.iter().any(|word| word.contains(BEGINS))
}

/// What the log of a start says of a stop command that failed, or was ended after `grace`; `None`
/// if all is well.
pub fn failure(log: &str, grace: Duration) -> Option<String> {
    let (output, ended) = match log.rsplit_once(BEGINS) {
        Some((_, after)) => (after, after.contains(ENDED)),
        // The start failed, so the command ran without being announced.
        None => (log, true),
    };
    let said = |output: &str| {
        let lines: Vec<&str> = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let text = lines.join("; ");
        let from = text.chars().count().saturating_sub(LONGEST_OUTPUT);
        let end: String = text.chars().skip(from).collect();
        if end.is_empty() { "it printed nothing".to_owned() } else { format!("it printed: {end}") }
    };
    const LEFT: &str = "what --start started may still run: end it by hand, and mend --stop";
    if let Some((output, rest)) = output.rsplit_once(FAILED) {
        let code = rest.lines().next().unwrap_or_default();
        return Some(format!("the stop command failed with exit code {code} ({}); {LEFT}", said(output)));
    }
    let seconds = grace.as_secs();
    (!ended).then(|| format!("the stop command did not end within {seconds} s ({}); {LEFT}", said(output)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_stop_command_is_reported_with_its_code_and_its_output() {
        let reported = |log: &str| failure(log, Duration::from_secs(15));
        assert_eq!(reported("server\n"), None);
        assert_eq!(reported(&format!("server\n{BEGINS}\nbye\n{ENDED}\n")), None);
        let found = reported(&format!("server\n{BEGINS}\nno such job\n{FAILED}3\n{ENDED}\n")).expect("a failure");
        assert!(found.contains("exit code 3 (it printed: no such job)") && !found.contains("server"), "{found}");
        let found = reported(&format!("server\n{BEGINS}\n")).expect("a failure");
        assert!(found.contains("within 15 s (it printed nothing)"), "{found}");
        assert!(reported(&format!("gone\n{FAILED}127\n")).is_some_and(|found| found.contains("127")));
    }
}
