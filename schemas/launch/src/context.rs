//! What is known of a text from where it is: its form, which decides the highest severity of
//! findings in it, and what may not be as it is read.

use schemas::{
    diagnostic::Severity,
    finding::{Doubt, Doubts, Finding},
    keywords::Callee,
    text::Source,
};

use super::{
    Launch,
    forks::Forks,
    kind::{
        TextKind, base_of, ending_of, has_fences, has_programs_of_supervisord, is_makefile, is_page_name,
        is_script_name,
    },
};

/// The form of a text that contains launches. An error needs a text that someone runs as it is
/// written; in all other forms a finding is a warning at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextForm {
    /// Standard input, a file whose name has no ending, or one that starts with `#!`.
    #[default]
    Input,
    /// A script of a shell or of a scheduler, by its ending.
    Script,
    /// A Makefile or justfile.
    Makefile,
    /// A Dockerfile.
    Dockerfile,
    /// A systemd unit, or a podman unit in the same format.
    Unit,
    /// A configuration of supervisord.
    Supervisor,
    /// A compose file.
    Compose,
    /// Kubernetes objects.
    Kubernetes,
    /// Values of a Helm chart.
    HelmValues,
    /// A playbook or a task list of Ansible.
    Ansible,
    /// A file for `--config` of an engine, or a section of one.
    EngineConfig,
    /// In Python: a call of an engine's class, or a command that the program starts.
    PythonCall,
    /// spectune's own TOML.
    LaunchFile,
    /// A block of Markdown whose language is a shell.
    ShellBlock,
    /// Any other block of Markdown, and pages without blocks.
    Page,
    /// Any other text in a Python program.
    PythonText,
    /// Python in a folder of tests, and the inputs and expected outputs of tests.
    Test,
    /// YAML, JSON and TOML of any other kind.
    OtherYaml,
    /// A file with any other ending.
    OtherFile,
}

/// What is known of a text from where it is, computed by the reader that sees it.
#[derive(Clone, Debug, Default)]
pub(super) struct TextContext {
    pub form: TextForm,
    /// What may not hold of each finding in the text.
    pub doubts: Doubts,
    /// Whether something other than a shell fills in variables first, in single quotes too:
    /// compose, a template.
    pub fills_in: bool,
    /// Whether it lists flags, one a line, which no shell reads.
    pub is_list: bool,
    /// The plugins and forks that the whole text names.
    pub forks: Forks,
    /// The class of an engine whose keywords the words are, if a program calls one.
    pub callee: Option<Callee>,
}

impl TextForm {
    /// All forms.
    pub const ALL: [Self; 19] = [
        Self::Input,
        Self::Script,
        Self::Makefile,
        Self::Dockerfile,
        Self::Unit,
        Self::Supervisor,
        Self::Compose,
        Self::Kubernetes,
        Self::HelmValues,
        Self::Ansible,
        Self::EngineConfig,
        Self::PythonCall,
        Self::LaunchFile,
        Self::ShellBlock,
        Self::Page,
        Self::PythonText,
        Self::Test,
        Self::OtherYaml,
        Self::OtherFile,
    ];

    /// The text as documentation names it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Input => "standard input, a file without an ending, a file that starts with `#!`",
            Self::Script => "a script of a shell or of a scheduler (`.sh`, `.bash`, `.sbatch`, `.slurm`, …)",
            Self::Makefile => "a Makefile or justfile",
            Self::Dockerfile => "a Dockerfile",
            Self::Unit => "a systemd unit",
            Self::Supervisor => "a configuration of supervisord",
            Self::Compose => "a compose file",
            Self::Kubernetes => "Kubernetes objects",
            Self::HelmValues => "values of a Helm chart (`values*.yaml`)",
            Self::Ansible => "a playbook or task list of Ansible",
            Self::EngineConfig => {
                "a file for `--config` of SGLang or vLLM, slime's `--sglang-config`, a recipe of srt-slurm"
            }
            Self::PythonCall => "Python: a call of an engine's class, a command that the program starts",
            Self::LaunchFile => "a launch file of spectune",
            Self::ShellBlock => "a Markdown block whose language is a shell (`bash`, `sh`, `console`, …)",
            Self::Page => "any other Markdown block, a page without blocks, reStructuredText",
            Self::PythonText => "any other command in Python",
            Self::Test => "Python tests, inputs and expected outputs of tests",
            Self::OtherYaml => "any other YAML, JSON, TOML",
            Self::OtherFile => "a file with any other ending",
        }
    }

    /// The highest severity of findings in such a text.
    pub fn highest_severity(self) -> Severity {
        match self {
            Self::Page | Self::PythonText | Self::Test | Self::OtherYaml | Self::OtherFile => Severity::Warning,
            _ => Severity::Error,
        }
    }

    /// The form of a whole text. That of YAML, Python and Markdown depends on the part: it is at
    /// most this.
    fn detect(source: &Source, kind: TextKind) -> Self {
        if is_of_test(source.name(), kind) {
            return Self::Test;
        }
        let is_named = ending_of(source.name()).is_some();
        match kind {
            TextKind::Toml => Self::LaunchFile,
            TextKind::Dockerfile => Self::Dockerfile,
            TextKind::Unit if has_programs_of_supervisord(source) => Self::Supervisor,
            TextKind::Unit => Self::Unit,
            // Someone runs it, whatever its name says.
            _ if source.text().starts_with("#!") && !has_fences(source) => Self::Input,
            TextKind::Python => Self::PythonText,
            TextKind::Markdown => Self::Page,
            TextKind::Script if is_page_name(source.name()) => Self::Page,
            TextKind::Yaml if is_named => Self::OtherYaml,
            _ if is_makefile(source.name()) => Self::Makefile,
            TextKind::Script if is_script_name(source.name()) => Self::Script,
            _ if is_named => Self::OtherFile,
            _ => Self::Input,
        }
    }
}

impl TextContext {
    /// The context of a whole text.
    pub fn for_text(source: &Source, kind: TextKind) -> Self {
        let form = TextForm::detect(source, kind);
        let whole =
            Self { forks: Forks::in_text(source), fills_in: TextKind::is_template(source.name()), ..Self::default() };
        // The reader decides for each part.
        let is_decided =
            !matches!(kind, TextKind::Yaml | TextKind::Python | TextKind::Markdown) || form == TextForm::Test;
        if is_decided { whole.inner(form) } else { Self { form, ..whole } }
    }

    /// The context of a part of the text: what is doubted of the whole is doubted of the part too.
    pub fn inner(&self, form: TextForm) -> Self {
        let mut inner = Self { form, ..self.clone() };
        if form == TextForm::OtherFile {
            inner = inner.with(Doubt::OtherFormat);
        }
        if form.highest_severity() < Severity::Error { inner.with(Doubt::Shown) } else { inner }
    }

    /// The same context with a doubt.
    pub fn with(mut self, doubt: Doubt) -> Self {
        self.doubts.insert(doubt);
        self
    }

    /// Whether the text is a page, or a block of one: flags by themselves may be those that it
    /// speaks of.
    pub fn is_page(&self) -> bool {
        matches!(self.form, TextForm::ShellBlock | TextForm::Page)
    }

    /// Whether lines of the text are one after the other in one script, not a collection of
    /// commands to choose from.
    pub fn is_script(&self) -> bool {
        !self.is_page() && self.form != TextForm::OtherFile
    }

    /// Whether someone runs the text as it is written.
    pub fn is_run(&self) -> bool {
        !self.doubts.contains(&Doubt::Shown)
    }

    /// Records the doubts in what was found in the text.
    pub fn mark(&self, launches: &mut [Launch], findings: &mut [Finding]) {
        launches.iter_mut().for_each(|launch| launch.is_shown |= !self.is_run());
        findings.iter_mut().for_each(|found| found.doubts.extend(&self.doubts));
    }
}

/// Whether a text is a Python test or the input of one, by its name. Shell scripts in a folder of
/// tests are not included: they may start a server.
fn is_of_test(name: &str, kind: TextKind) -> bool {
    const TESTS: [&str; 3] = ["test", "testing", "tests"];
    const INPUTS: [&str; 4] = ["fixtures", "snapshots", "testdata", "test_data"];
    let base = base_of(name).to_ascii_lowercase();
    let stem = base.split('.').next().unwrap_or_default();
    let is_in = |folders: &[&str]| {
        let mut own = name.rsplit(['/', '\\']).skip(1).map(|folder| folder.trim_matches('_').to_ascii_lowercase());
        own.any(|folder| folders.contains(&folder.as_str()))
    };
    match kind {
        TextKind::Python => {
            stem.starts_with("test_")
                || stem.ends_with("_test")
                || stem == "conftest"
                || is_in(&TESTS)
                || is_in(&INPUTS)
        }
        // Configurations that a project uses in its tests are run as they are; only inputs are not.
        TextKind::Yaml => is_in(&INPUTS),
        _ => false,
    }
}
