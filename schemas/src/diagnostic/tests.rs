use super::{
    fix::{apply, until_stable},
    *,
};

const TEXT: &str = "SGLANG_ARGS=(\n   --sglang-speculative-num-steps 3\n   --sglang-speculative-eagle-topk 1\n   --sglang-speculative-num-draft-tokens 24 # größer\n)\n";

fn span(text: &str, part: &str) -> Span {
    let start = text.find(part).expect("in the text");
    Span::new(start, start + part.len())
}

fn finding() -> Diagnostic {
    Diagnostic {
        code: "SD023",
        name: "topk1-drafts-adjusted",
        severity: Severity::Warning,
        message: "with topk 1 sglang runs 4 draft tokens, not 24".into(),
        span: span(TEXT, "24"),
        label: "replaced by num_steps + 1".into(),
        related: vec![Related {
            span: Span::new(span(TEXT, "3\n").start, span(TEXT, "3\n").start + 1),
            label: "3 steps".into(),
        }],
        notes: vec!["100% of the drafts, verified: a chain".into()],
        help: Some("write `--sglang-speculative-num-draft-tokens 4`".into()),
        fix: Some(Fix {
            description: "write what runs".into(),
            safety: Safety::Safe,
            edits: vec![Edit { span: span(TEXT, "24"), replacement: "4".into() }],
        }),
    }
}

fn rendered(format: Format) -> String {
    let source = Source::new("run, slime.sh", TEXT);
    let diagnostics = [finding()];
    render(&[Findings { source: &source, diagnostics: &diagnostics }], format, false)
}

#[test]
fn for_a_reader() {
    insta::assert_snapshot!(rendered(Format::Full), @r"
    warning[SD023]: with topk 1 sglang runs 4 draft tokens, not 24
     --> run, slime.sh:4:42
      |
    2 |    --sglang-speculative-num-steps 3
      |                                   - 3 steps
    3 |    --sglang-speculative-eagle-topk 1
    4 |    --sglang-speculative-num-draft-tokens 24 # größer
      |                                          ^^ replaced by num_steps + 1
      |
      = note: 100% of the drafts, verified: a chain
      = help: write `--sglang-speculative-num-draft-tokens 4`
    help: safe fix: write what runs
      |
    4 -    --sglang-speculative-num-draft-tokens 24 # größer
    4 +    --sglang-speculative-num-draft-tokens 4 # größer
      |
    ");
}

#[test]
fn a_text_that_cannot_be_seen_has_flags_and_no_lines() {
    let command = "python3 -m sglang.launch_server \\\n  --model-path m \\\n  --mem-fraction-static 1.7\n";
    let source = Source::unseen("<http://localhost:30000>", command);
    let found = [
        Diagnostic {
            span: span(command, "1.7"),
            label: "out of range".into(),
            related: vec![Related { span: span(command, "--model-path"), label: "its target".into() }],
            notes: Vec::new(),
            ..finding()
        },
        Diagnostic { span: span(command, "python3"), related: Vec::new(), ..finding() },
    ];
    let rendered = |format| render(&[Findings { source: &source, diagnostics: &found }], format, false);
    insta::assert_snapshot!(rendered(Format::Full), @r"
    warning[SD023]: with topk 1 sglang runs 4 draft tokens, not 24
    --> <http://localhost:30000>
     = note: `--mem-fraction-static 1.7`: out of range
     = note: `--model-path m`: its target
     = help: write `--sglang-speculative-num-draft-tokens 4`

    warning[SD023]: with topk 1 sglang runs 4 draft tokens, not 24
    --> <http://localhost:30000>
     = note: 100% of the drafts, verified: a chain
     = help: write `--sglang-speculative-num-draft-tokens 4`
    ");
    let line = "<http://localhost:30000>: warning[SD023] with topk 1 sglang runs 4 draft tokens, not 24\n";
    assert_eq!(rendered(Format::Concise), line.repeat(2));
    let list: Vec<serde_json::Value> = serde_json::from_str(&rendered(Format::Json)).expect("JSON");
    for name in ["line", "column", "end_line", "end_column", "fix"] {
        assert!(list[0][name].is_null() && list[0].get(name).is_some(), "{name}");
    }
    assert_eq!((list[0]["flag"].as_str(), list[1]["flag"].as_str()), (Some("--mem-fraction-static 1.7"), None));
}

#[test]
fn one_line_a_finding() {
    insta::assert_snapshot!(rendered(Format::Concise), @"run, slime.sh:4:42: warning[SD023] with topk 1 sglang runs 4 draft tokens, not 24");
}

#[test]
fn for_programs() {
    insta::assert_snapshot!(rendered(Format::Json), @r#"
    [
      {
        "code": "SD023",
        "name": "topk1-drafts-adjusted",
        "severity": "warning",
        "message": "with topk 1 sglang runs 4 draft tokens, not 24",
        "file": "run, slime.sh",
        "line": 4,
        "column": 42,
        "end_line": 4,
        "end_column": 44,
        "help": "write `--sglang-speculative-num-draft-tokens 4`",
        "fix": {
          "description": "write what runs",
          "safety": "safe",
          "edits": [
            {
              "line": 4,
              "column": 42,
              "end_line": 4,
              "end_column": 44,
              "replacement": "4"
            }
          ]
        },
        "url": null
      }
    ]
    "#);
}

#[test]
fn for_github() {
    insta::assert_snapshot!(rendered(Format::Github), @"::warning file=run%2C slime.sh,line=4,col=42,endColumn=44,title=SD023 topk1-drafts-adjusted::with topk 1 sglang runs 4 draft tokens, not 24%0Ahelp: write `--sglang-speculative-num-draft-tokens 4`");
}

#[test]
fn for_code_scanning() {
    let source = Source::new("run, slime.sh", TEXT);
    let summary = "With topk 1 the number of draft tokens is always steps + 1, whatever is requested.".to_owned();
    let page = Some(("the page".to_owned(), "# The page\n".to_owned()));
    let descriptor = sarif::Descriptor { severity: Severity::Warning, tags: vec!["tree"], summary, page };
    let findings = [Findings { source: &source, diagnostics: &[finding()] }];
    let log = sarif::render(&findings, |code| (code == "SD023").then(|| descriptor.clone()));
    let mut log: serde_json::Value = serde_json::from_str(&log).expect("JSON");
    let help = log["runs"][0]["tool"]["driver"]["rules"][0]["help"].take();
    assert_eq!(help["markdown"].as_str(), Some("# The page\n"));
    insta::assert_snapshot!(serde_json::to_string_pretty(&log).expect("JSON"), @r#"
    {
      "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
      "version": "2.1.0",
      "runs": [
        {
          "tool": {
            "driver": {
              "name": "spectune",
              "version": "0.2.0",
              "rules": [
                {
                  "id": "SD023",
                  "name": "topk1-drafts-adjusted",
                  "defaultConfiguration": {
                    "level": "warning"
                  },
                  "properties": {
                    "tags": [
                      "tree"
                    ]
                  },
                  "shortDescription": {
                    "text": "With topk 1 the number of draft tokens is always steps + 1, whatever is requested."
                  },
                  "help": null
                }
              ]
            }
          },
          "columnKind": "unicodeCodePoints",
          "results": [
            {
              "ruleId": "SD023",
              "ruleIndex": 0,
              "level": "warning",
              "message": {
                "text": "with topk 1 sglang runs 4 draft tokens, not 24; write `--sglang-speculative-num-draft-tokens 4`"
              },
              "locations": [
                {
                  "physicalLocation": {
                    "artifactLocation": {
                      "uri": "run%2C%20slime.sh"
                    },
                    "region": {
                      "startLine": 4,
                      "startColumn": 42,
                      "endLine": 4,
                      "endColumn": 44
                    }
                  }
                }
              ],
              "relatedLocations": [
                {
                  "physicalLocation": {
                    "artifactLocation": {
                      "uri": "run%2C%20slime.sh"
                    },
                    "region": {
                      "startLine": 2,
                      "startColumn": 35,
                      "endLine": 2,
                      "endColumn": 36
                    }
                  },
                  "message": {
                    "text": "3 steps"
                  }
                }
              ],
              "fixes": [
                {
                  "description": {
                    "text": "write what runs"
                  },
                  "artifactChanges": [
                    {
                      "artifactLocation": {
                        "uri": "run%2C%20slime.sh"
                      },
                      "replacements": [
                        {
                          "deletedRegion": {
                            "startLine": 4,
                            "startColumn": 42,
                            "endLine": 4,
                            "endColumn": 44
                          },
                          "insertedContent": {
                            "text": "4"
                          }
                        }
                      ]
                    }
                  ]
                }
              ]
            }
          ]
        }
      ]
    }
    "#);
}

#[test]
fn nothing_found_is_still_valid_output() {
    let empty = |format| render(&[], format, true);
    assert_eq!([empty(Format::Full), empty(Format::Concise), empty(Format::Github)], ["", "", ""]);
    assert_eq!(empty(Format::Json), "[]\n");
    assert!(serde_json::from_str::<serde_json::Value>(&empty(Format::Sarif)).is_ok());
}

#[test]
fn places_outside_of_the_text_are_drawn_somewhere_inside() {
    for text in ["", "ä", "\n\n", "a\r\nb", "\u{1F600}\tx"] {
        let source = Source::new("x", text);
        for start in 0..8 {
            for end in 0..8 {
                let edit = Edit { span: Span::new(start, end), replacement: "y\n".into() };
                let fix = Fix { description: "do".into(), safety: Safety::Safe, edits: vec![edit] };
                let related = vec![Related { span: Span::new(end, end + 1), label: "there".into() }];
                let diagnostic = Diagnostic { span: Span::new(start, end), related, fix: Some(fix), ..finding() };
                let diagnostics = [diagnostic];
                for (format, _) in Format::ALL {
                    render(&[Findings { source: &source, diagnostics: &diagnostics }], format, true);
                }
                apply(&source, &diagnostics, true);
            }
        }
    }
}

fn edit(start: usize, end: usize, replacement: &str, safety: Safety) -> Diagnostic {
    let edits = vec![Edit { span: Span::new(start, end), replacement: replacement.into() }];
    Diagnostic { fix: Some(Fix { description: String::new(), safety, edits }), ..finding() }
}

#[test]
fn fixes_that_touch_wait_for_the_next_round() {
    use Safety::{Safe, Unsafe};
    let source = Source::new("x", "0123456789");
    let check = |diagnostics: &[Diagnostic], also_unsafe: bool, expected: (&str, &[usize], &[usize])| {
        let fixed = apply(&source, diagnostics, also_unsafe);
        assert_eq!((fixed.text.as_str(), fixed.applied.as_slice(), fixed.postponed.as_slice()), expected);
    };
    check(&[edit(5, 6, "b", Safe), edit(1, 3, "a", Safe)], false, ("0a34b6789", &[0, 1], &[]));
    check(&[edit(1, 4, "a", Safe), edit(3, 6, "b", Safe)], false, ("0a456789", &[0], &[1]));
    check(&[edit(2, 2, "+", Safe), edit(2, 2, "-", Safe)], false, ("01+23456789", &[0], &[1]));
    check(&[edit(2, 2, "+", Safe), edit(2, 2, "+", Safe)], false, ("01+23456789", &[0, 1], &[]));
    check(&[edit(2, 2, "+", Unsafe)], false, ("0123456789", &[], &[]));
    check(&[edit(2, 2, "+", Unsafe)], true, ("01+23456789", &[0], &[]));
    check(&[edit(9, 99, "+", Safe)], false, ("0123456789", &[], &[]));
    // An insertion may be before or after an edit, but not inside it.
    check(&[edit(2, 5, "a", Safe), edit(2, 2, "+", Safe)], false, ("01+a56789", &[0, 1], &[]));
    check(&[edit(5, 5, "+", Safe), edit(2, 5, "a", Safe)], false, ("01a+56789", &[0, 1], &[]));
    check(&[edit(2, 5, "a", Safe), edit(3, 3, "+", Safe)], false, ("01a56789", &[0], &[1]));
    check(&[edit(3, 3, "+", Safe), edit(2, 5, "a", Safe)], false, ("012+3456789", &[0], &[1]));
    check(
        &[edit(0, 2, "a", Safe), edit(2, 2, "+", Safe), edit(2, 4, "b", Safe), edit(1, 3, "c", Safe)],
        false,
        ("a+b456789", &[0, 1, 2], &[3]),
    );
    check(&[finding()], false, ("0123456789", &[], &[]));
}

/// A linter that finds `from` and offers to replace it with `to`.
fn replacing(from: &'static str, to: &'static str) -> impl Fn(&Source) -> Vec<Diagnostic> {
    move |source: &Source| {
        let text = source.text();
        let broken =
            text.contains('!').then(|| Diagnostic { code: "LT03", severity: Severity::Error, fix: None, ..finding() });
        let found = text.match_indices(from).map(|(at, _)| edit(at, at + from.len(), to, Safety::Safe));
        found.chain(broken).collect()
    }
}

#[test]
fn fixing_goes_on_until_nothing_is_left_and_never_for_ever() {
    let check = |text: &str, from, to, expected: &str, fixed: &[(&'static str, usize)], refused: &[&str]| {
        let edited = until_stable(&Source::new("x", text), false, replacing(from, to));
        let counts: Vec<_> = edited.fixed.into_iter().collect();
        assert_eq!((edited.text.as_str(), counts.as_slice(), edited.refused.as_slice()), (expected, fixed, refused));
    };
    check("aab ab", "ab", "b", "b b", &[("SD023", 3)], &[]);
    check("x", "ab", "b", "x", &[], &[]);
    // A fix that is always offered again is reverted completely.
    check("a", "a", "aa", "a", &[], &["SD023"]);
    // A fix after which the text cannot be read is reverted.
    check("a", "a", "!", "a", &[], &["SD023"]);
    check("a!", "a", "b", "b!", &[("SD023", 1)], &[]);
}

#[test]
fn statistics_count_by_code() {
    let source = Source::new("x", TEXT);
    let other = Diagnostic { code: "SD081", name: "graph-bs-gaps", severity: Severity::Error, fix: None, ..finding() };
    let diagnostics = [other, finding(), edit(0, 1, "", Safety::Unsafe)];
    let findings = [Findings { source: &source, diagnostics: &diagnostics }];
    insta::assert_snapshot!(statistics::table(&findings), @r"
    2  SD023  warning  topk1-drafts-adjusted  1 fixable, 1 more with --unsafe-fixes
    1  SD081  error    graph-bs-gaps
    ");
    let list: serde_json::Value = serde_json::from_str(&statistics::json(&findings)).expect("JSON");
    assert_eq!((&list[0]["count"], &list[0]["fixable_unsafe"]), (&2.into(), &1.into()));
    assert_eq!(statistics::table(&[]), "");
}

#[test]
fn findings_are_tidied_by_place_and_severity() {
    let at = |start: usize, severity| Diagnostic { span: Span::new(start, start), severity, ..finding() };
    let mut all =
        vec![at(5, Severity::Info), at(1, Severity::Warning), at(5, Severity::Error), at(1, Severity::Warning)];
    tidy(&mut all);
    let found: Vec<_> = all.iter().map(|one| (one.span.start, one.severity)).collect();
    assert_eq!(found, [(1, Severity::Warning), (5, Severity::Error), (5, Severity::Info)]);
}

#[test]
fn formats_are_named_by_their_words() {
    for (format, word) in Format::ALL {
        assert_eq!((format.to_string().as_str(), word.parse()), (word, Ok(format)));
    }
    assert!("html".parse::<Format>().is_err());
}
