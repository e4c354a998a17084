//! The page of commands contains the help of every command, as printed by the binary.

use std::process::Command;

use super::check_generated;

fn help(arguments: &[&str]) -> String {
    // Without a terminal, help is wrapped at 100 columns.
    let output = Command::new(env!("CARGO_BIN_EXE_spectune"))
        .args(arguments)
        .arg("--help")
        .env_remove("COLUMNS")
        .output()
        .expect("the binary starts");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn the_page_of_commands_is_their_help() {
    let whole = help(&[]);
    let commands: Vec<&str> = whole
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.contains(&"lint") && commands.contains(&"man"), "{commands:?}");
    let mut page = String::from(
        "# Commands\n\nThe output of `spectune COMMAND --help`, from which this page is generated. The engine flags of \
         `generate`, `serve` and `bench` have SGLang's names; [a separate page](flags.md) lists all flags that spectune knows.\n",
    );
    page.push_str(&format!("\n## spectune\n\n```text\n{}\n```\n", whole.trim_end()));
    for command in commands {
        page.push_str(&format!("\n## spectune {command}\n\n```text\n{}\n```\n", help(&[command]).trim_end()));
    }
    check_generated("docs/reference/commands.md", &page);
}
