//! From shell text to the command lines that it runs, with variables and arrays expanded as far as
//! they are known.

mod arithmetic;
mod blocks;
mod conditions;
mod control_flow;
mod copies;
mod destination;
mod env_file;
mod execute;
mod expand;
mod exports;
mod here_documents;
mod implied;
mod inside;
mod read_builtin;
mod remote;
mod surroundings;
mod unused;
mod value;
mod variables;

use std::{
    borrow::Cow,
    cell::Cell,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use self::{
    blocks::Arms,
    control_flow::{Branch, Conditional, Elements},
    copies::Copies,
    implied::Implication,
};
use schemas::text::{Located, Source, Span};

use super::{
    Environment, Value, Variables,
    command::{CommandText, ShellCommand},
    compose::Composed,
    condition::LaunchCondition,
    document::Document,
    evidence::StatedVersion,
    shell::{ShellReader, ShellStatement, Trouble},
};

/// Maximum number of commands of one text, and of constructs in it that do not close.
const MOST_COMMANDS: usize = 1024;

/// What a variable holds.
#[derive(Clone, Debug)]
struct ShellVariable<'a> {
    /// Its whole text.
    value: CommandText<'a>,
    /// The words that a bare use of it comes to, each at its place in the assignment, on each way.
    words: Elements<'a>,
    /// The text as commands such as `eval` read it again.
    literal: Option<Composed>,
    /// Whether a command used it.
    used: bool,
    /// In what order it came.
    order: usize,
}

struct Interpreter<'a> {
    source: &'a Source,
    scalars: HashMap<Cow<'a, str>, ShellVariable<'a>>,
    copies: Copies<'a>,
    implied: HashMap<&'a str, Implication>,
    /// Every array that was ever assigned; a name that is assigned twice without use keeps both.
    arrays: Vec<Elements<'a>>,
    /// Which of them a name means now.
    current: HashMap<&'a str, usize>,
    /// The version of the engine that is installed, where requirements name one.
    pinned: Option<Option<StatedVersion>>,
    /// Shared by the launches that run in it.
    exported: Arc<Environment>,
    /// Exported variables that get several values.
    varied: HashSet<String>,
    /// Exports of branches that have ended, by the depth of their block.
    pending: Vec<(usize, &'a str, Located<Value>)>,
    /// How many names were assigned before each open block.
    blocks: Vec<usize>,
    /// The current branch of each open block, up to the maximum depth.
    gone: Vec<Branch>,
    /// The branches of each open block.
    arms: Vec<Arms<'a>>,
    /// The condition under which the last command succeeded.
    status: LaunchCondition,
    /// Branches that do not run with the values that the text gives: block and turn.
    untaken: HashSet<(u32, u32)>,
    /// Whether that is so of the rest of the script.
    is_untaken: bool,
    /// Whether the commands are inside a quoted word, so that quotes in the values of variables are
    /// read too.
    is_inside: bool,
    /// How many blocks there were.
    blocks_seen: u32,
    /// Names assigned in the open blocks.
    assigned: Vec<&'a str>,
    commands: Vec<ShellCommand<'a>>,
    troubles: Vec<Trouble>,
    documents: Vec<Document>,
    words: usize,
    bytes: Cell<usize>,
    order: usize,
    /// Values that come from outside the text; their words then need no place in it.
    given: Option<&'a Variables>,
}

/// Where the words of a command came from.
#[derive(Default)]
struct Used<'a> {
    arrays: Vec<usize>,
    scalars: Vec<&'a str>,
    /// The ones that are not present in every branch.
    conditional: Vec<Conditional>,
}

/// The result of interpreting a script.
#[derive(Clone, Debug, Default)]
pub(super) struct LaunchScript<'a> {
    /// Commands in order, then the variables that no command uses.
    pub commands: Vec<ShellCommand<'a>>,
    /// Here-documents that contain scripts or YAML.
    pub documents: Vec<Document>,
    /// Constructs that were not closed.
    pub troubles: Vec<Trouble>,
}

/// Interprets a text. `given` are variables that it does not set.
pub(super) fn read<'a>(source: &'a Source, given: Option<&'a Variables>) -> LaunchScript<'a> {
    let mut interpreter = Interpreter::new(source);
    given.into_iter().for_each(|given| interpreter.give(given));
    if env_file::is_env_file(source) {
        interpreter.read_env_file();
    } else {
        interpreter.run(ShellReader::new(source.text(), Span::new(0, source.text().len())), 0);
    }
    interpreter.finish()
}

impl<'a> Interpreter<'a> {
    fn new(source: &'a Source) -> Self {
        Self {
            source,
            scalars: HashMap::new(),
            copies: HashMap::new(),
            implied: HashMap::new(),
            arrays: Vec::new(),
            current: HashMap::new(),
            pinned: None,
            exported: Arc::default(),
            varied: HashSet::new(),
            pending: Vec::new(),
            blocks: Vec::new(),
            gone: Vec::new(),
            arms: Vec::new(),
            status: LaunchCondition::Unknown,
            untaken: HashSet::new(),
            is_untaken: false,
            is_inside: false,
            blocks_seen: 0,
            assigned: Vec::new(),
            commands: Vec::new(),
            troubles: Vec::new(),
            documents: Vec::new(),
            words: 0,
            bytes: Cell::new(0),
            order: 0,
            given: None,
        }
    }

    /// Sets the variables of the environment.
    fn give(&mut self, given: &'a Variables) {
        for (name, value) in given.environment.iter().chain(&given.fixed) {
            self.scalars.insert(name.as_str().into(), self.given_scalar(value));
        }
        self.given = Some(given);
    }

    fn given_scalar(&self, value: &'a str) -> ShellVariable<'a> {
        let value = CommandText::Known(value.into());
        ShellVariable { value, words: Elements::default(), literal: None, used: true, order: self.order }
    }

    fn run(&mut self, mut reader: ShellReader<'a>, nesting: usize) {
        for statement in reader.by_ref() {
            match statement {
                ShellStatement::BlockOpens(block) => self.open(block),
                ShellStatement::BlockTurns => self.turn(),
                ShellStatement::BlockCloses => self.close(),
                ShellStatement::Then => self.then(),
                ShellStatement::AndOr { or } => self.and_or(or),
                ShellStatement::Subject(word) => self.subject(word),
                ShellStatement::Patterns(words) => self.patterns(&words),
                ShellStatement::Array(array) => self.assign_array(array),
                ShellStatement::HereDocument(document) if nesting == 0 => self.document(&document),
                ShellStatement::HereDocument(_) => {}
                ShellStatement::Command(command) => {
                    self.status = self.condition_of(&command);
                    if nesting == 0 {
                        self.note_end(&command);
                    }
                    self.command(&command, nesting);
                }
            }
        }
        let room = MOST_COMMANDS.saturating_sub(self.troubles.len());
        self.troubles.extend(reader.into_troubles().into_iter().take(room));
    }
}

/// What a variable holds of which nothing is known.
fn anything(name: &str) -> CommandText<'static> {
    CommandText::Unknown(format!("${name}").into())
}
