//! What the D compiler asks about the traced program ([`Target`]), answered from its modules and their debug information.
//!
//! Nothing is opened before something is asked. A command is asked twice: before it is started its file stands for it, so
//! that a program that does not compile starts nothing; then the process, which has the addresses. Debug information that
//! was read once is kept for the second time ([`debug_info`]).
//!
//! The libraries of a command are not mapped when its program is compiled. Which they will be follows from its file as the
//! linker would find them ([`loader`]), so that their types are known; their variables' addresses are not.
//!
//! A name may say its module, as in `` a.out`request ``; one that does not is looked for in the program first, then in its
//! libraries in the order in which they were mapped. In front of both may stand the process: `` pid123`request ``.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::ffi::OsString;
use std::path::Path;
use std::rc::Rc;

use nanoprobe_lang::glob;
use nanoprobe_lang::options::Demangle;
use nanoprobe_lang::program::{Goroutines, ProbeDescription, Type};
use nanoprobe_lang::target::{Argument, ArgumentPlace, Target, Unknown, Variable};
use nanoprobe_symbols::loader::{self, Needed};
use nanoprobe_symbols::{ImageAddress, Module, ModuleKind, SymbolKind, files};
use nanoprobe_target::Process;
use nanoprobe_text::modules::{is_whole, modules_of};
use nanoprobe_types::{DebugInfo, Inlined, Kind, Problem, at_entry};

use crate::debug::debug_info;
use crate::error::SessionError;
use crate::function_arguments::{arguments_of, unknown};
use crate::goroutines;
use crate::probes::{Line, answers_to, is_target_provider, matching_name, means_inlined, named_process};
use crate::session::Choice;
use crate::statics::{arguments_at, has_provider, may_be_static};

/// The most functions whose parameters are compared for one clause.
const FUNCTIONS_MAX: usize = 4096;

/// The program of a session, for the compiler. It must live as long as what was compiled with it: its types read on.
pub struct TracedProgram {
    choice: Choice,
    process: Option<Process>,
    /// Of a running process: as it was when it was asked first.
    asked: OnceCell<Process>,
    /// What a type's name has said that it is, where nothing else does.
    named: OnceCell<i32>,
    modules: OnceCell<Vec<Module>>,
    /// Of a command: what the linker will map.
    libraries: Rc<OnceCell<Vec<Library>>>,
}

/// A library that is not mapped yet: its file stands for it.
struct Library {
    needed: Needed,
    module: OnceCell<Option<Module>>,
}

impl Library {
    fn module(&self) -> Option<&Module> {
        let open = || files::open(&self.needed.path, &self.needed.path).ok();
        self.module.get_or_init(open).as_ref()
    }
}

impl TracedProgram {
    /// What is going to be traced.
    #[must_use]
    pub fn new(choice: Choice) -> TracedProgram {
        TracedProgram {
            choice,
            process: None,
            asked: OnceCell::new(),
            named: OnceCell::new(),
            modules: OnceCell::new(),
            libraries: Rc::default(),
        }
    }

    /// The same, now that its process is known.
    #[must_use]
    pub fn started(&self, process: &Process) -> TracedProgram {
        TracedProgram {
            choice: self.choice.clone(),
            process: Some(process.clone()),
            asked: OnceCell::new(),
            named: OnceCell::new(),
            modules: OnceCell::new(),
            libraries: self.libraries.clone(),
        }
    }

    /// Whether what was answered so far is about the program that the process executes now.
    ///
    /// # Errors
    /// [`SessionError::Executed`]: it is to be asked anew.
    pub fn check_program(&self) -> Result<(), SessionError> {
        match self.asked.get().filter(|process| process.has_executed()) {
            Some(process) => Err(SessionError::Executed { pid: process.pid() }),
            None => Ok(()),
        }
    }

    /// Whether the running process that was asked is still being started. To be asked where something was not found.
    ///
    /// # Errors
    /// [`SessionError::Starting`].
    pub fn check_started(&self) -> Result<(), SessionError> {
        match (self.asked.get(), self.modules.get()) {
            (Some(process), Some(modules)) if !is_whole(modules) => Err(SessionError::Starting {
                pid: process.pid(),
                error: None,
            }),
            _ => Ok(()),
        }
    }

    /// The modules of a running process; none where it cannot be traced, which the session will say.
    fn ask_process(&self, pid: i32) -> Vec<Module> {
        let Ok(process) = Process::open(pid) else {
            return Vec::new();
        };
        modules_of(self.asked.get_or_init(|| process))
    }

    /// Its modules, the program first. `probes` may name the process where nothing else does.
    fn modules(&self, probes: &[ProbeDescription]) -> &[Module] {
        if let Some(modules) = self.modules.get() {
            return modules;
        }
        let found = match (&self.process, &self.choice) {
            (Some(process), _) => modules_of(process),
            (None, Choice::Process(pid)) => self.ask_process(*pid),
            (None, Choice::Command(words)) => executable(words).into_iter().collect(),
            (None, Choice::Named) => match named_process(probes.iter()) {
                Some((pid, _)) => self.ask_process(pid),
                // The next question may know it.
                None => return &[],
            },
        };
        self.modules.get_or_init(|| found)
    }

    /// A name without the number of the process that it is of, ``pid123` ``: that must be this one. Where nothing else has
    /// named the process yet, this does.
    fn of_this_process<'n>(&self, name: &'n str) -> Result<&'n str, Unknown> {
        let Some((pid, rest)) = numbered(name) else {
            return Ok(name);
        };
        let own = match (&self.process, &self.choice) {
            (Some(process), _) => Some(process.pid()),
            (None, Choice::Process(own)) => Some(*own),
            (None, Choice::Named) if pid > 0 => Some(*self.named.get_or_init(|| pid)),
            (None, Choice::Command(_) | Choice::Named) => None,
        };
        if own != Some(pid) {
            let message = format!("failed to resolve {name}: pid{pid} is not the process that is traced");
            return Err(Unknown::new("D_TYPE_ERR", message).with_help("name it by -p"));
        }
        if self.named.get().is_some() {
            self.modules.get_or_init(|| self.ask_process(pid));
        }
        Ok(rest)
    }

    /// Its modules, and behind them those that the linker of a command will map, as far as a pattern means them: opened when
    /// they are come to. Their addresses are not known.
    fn modules_to_come<'s>(
        &'s self,
        probes: &[ProbeDescription],
        pattern: Option<&'s str>,
    ) -> impl Iterator<Item = &'s Module> + use<'s> {
        let mapped = self.modules(probes);
        let later = std::iter::once(()).flat_map(|()| self.libraries());
        let later = later.filter(move |library| {
            let is_mapped = mapped.iter().any(|module| module.path() == library.needed.path);
            let is_meant = |pattern: &str| library.needed.names.iter().any(|name| glob::matches(pattern, name));
            !is_mapped && pattern.is_none_or(is_meant)
        });
        mapped.iter().chain(later.filter_map(Library::module))
    }

    fn libraries(&self) -> &[Library] {
        let Choice::Command(words) = &self.choice else {
            return &[];
        };
        self.libraries.get_or_init(|| {
            let path = std::env::var_os("LD_LIBRARY_PATH");
            let found = executable(words).map(|program| loader::libraries(&program, path.as_deref()));
            let library = |needed| Library {
                needed,
                module: OnceCell::new(),
            };
            found.unwrap_or_default().into_iter().map(library).collect()
        })
    }

    /// Asks the modules that a name may mean, in order, until one knows it.
    fn ask<T>(
        &self,
        tag: &'static str,
        what: &str,
        scope: Option<&str>,
        question: impl Fn(&DebugInfo) -> Result<T, Problem>,
    ) -> Result<T, Unknown> {
        let mut reason: Option<Problem> = None;
        let mut asked = false;
        for module in self.modules_to_come(&[], scope) {
            if scope.is_some_and(|scope| !is_meant(module, scope)) || module.kind() == ModuleKind::Vdso {
                continue;
            }
            asked = true;
            match debug_info(module).and_then(|info| question(&info)) {
                Ok(found) => return Ok(found),
                // What is wrong with the program's own debug information is more likely the reason than that a
                // library does not know the name.
                Err(problem) => {
                    reason.get_or_insert(problem);
                }
            }
        }
        Err(match reason {
            Some(problem) => unknown(tag, &format!("failed to resolve {what}"), &problem),
            None if asked || scope.is_none() => {
                Unknown::new(tag, format!("failed to resolve {what}: no program to ask"))
                    .with_help("name the process by -p, or start it by -c")
            }
            None => no_module(what, scope.unwrap_or_default()),
        })
    }

    /// The functions of which a probe means inlined copies; what cannot be read has none.
    fn inlined(&self, module: &Module, probe: &ProbeDescription) -> Vec<Inlined> {
        if !means_inlined(probe) {
            return Vec::new();
        }
        let answers = |name: &str| answers_to(name, &probe.function, Demangle::Auto).map(Cow::into_owned);
        let wanted = glob::literal(&probe.function).unwrap_or_default();
        let found = debug_info(module).and_then(|info| info.inlined(&wanted, answers));
        found.unwrap_or_default()
    }
}

impl TracedProgram {
    /// A variable of a library's that lives in the program, where the loader has copied it (`stdout`, `environ`): whichever of
    /// the two is named. The program may have its type only where the library describes it.
    fn copy_of(&self, module: &Module, address: u64) -> Option<Variable> {
        let program = self.modules(&[]).first()?;
        let is_program = module.kind() == ModuleKind::Executable;
        let is_meant = |(copy, name): &(ImageAddress, String)| match is_program {
            true => copy.0 == address,
            false => module.symbol(name).is_some_and(|symbol| symbol.address.0 == address),
        };
        let (copy, name) = program.copied_variables().into_iter().find(is_meant)?;
        let described = |library: &Module| {
            let symbol = library.symbol(&name)?;
            let variable = debug_info(library).ok()?.variable(&name, Some(symbol.address.0)).ok()?;
            Some(variable.value_type)
        };
        let mut libraries = self
            .modules_to_come(&[], None)
            .filter(|library| library.kind() != ModuleKind::Executable);
        Some(Variable {
            address: program.bias().to_target(copy).0,
            value_type: libraries.find_map(described),
        })
    }
}

impl Target for TracedProgram {
    fn goroutines(&self, probes: &[ProbeDescription]) -> Result<Option<Goroutines>, Unknown> {
        goroutines::of(self.modules(probes))
    }

    fn tagged(&self, keyword: &str, tag: &str) -> Result<Type, Unknown> {
        let (scope, name) = divided(self.of_this_process(tag)?);
        let kind = match keyword {
            "enum" => Kind::Enumeration,
            _ => Kind::Structure,
        };
        let what = format!("{keyword} {tag}");
        self.ask("D_TYPE_ERR", &what, scope, |info| info.type_named(kind, name))
    }

    fn named(&self, name: &str) -> Result<Type, Unknown> {
        let (scope, of) = divided(self.of_this_process(name)?);
        self.ask("D_TYPE_ERR", name, scope, |info| info.type_named(Kind::Named, of))
    }

    fn enumerator(&self, name: &str) -> Option<i64> {
        self.modules_to_come(&[], None).find_map(|module| {
            let info = debug_info(module).ok()?;
            info.enumerator(name)
        })
    }

    fn arguments(&self, probes: &[ProbeDescription]) -> Result<Vec<Argument>, Unknown> {
        let mut found: Option<(Vec<Argument>, String)> = None;
        let mut count = 0;
        for probe in probes {
            let is_static = may_be_static(probe) && !means_both(&probe.provider);
            if !is_static && !is_target_provider(probe) {
                return Err(Unknown::new("D_ARGS_NONE", format!("the probe {probe} has no args[ ]")));
            }
            if Line::of(probe).is_some() {
                let message = format!("the probe {probe} has no args[ ]: a line is no call");
                return Err(Unknown::new("D_ARGS_NONE", message));
            }
            let mut take = |arguments: Vec<Argument>, name: &str| -> Result<(), Unknown> {
                count += 1;
                if count > FUNCTIONS_MAX {
                    let message = "args[ ] may not be referenced because the clause matches too many functions";
                    return Err(Unknown::new("D_ARGS_MULTI", message));
                }
                match &mut found {
                    None => found = Some((arguments, name.to_owned())),
                    Some((common, first)) => agree(common, &arguments, first, name),
                }
                Ok(())
            };
            let pattern = Some(probe.module.as_str()).filter(|pattern| !pattern.is_empty());
            for module in self.modules_to_come(probes, pattern) {
                if !probe.module.is_empty() && !is_meant(module, &probe.module) {
                    continue;
                }
                if is_static {
                    for (arguments, name) in arguments_at(module, probe) {
                        take(arguments, &name)?;
                    }
                    continue;
                }
                for function in module.functions() {
                    let Some(name) = matching_name(function, &probe.function, Demangle::Auto) else {
                        continue;
                    };
                    take(arguments_of(module, function, &probe.name)?, &name)?;
                }
                for inlined in self.inlined(module, probe) {
                    let mut arguments = at_entry(&inlined.signature);
                    for argument in &mut arguments {
                        if let ArgumentPlace::Stack(_) = argument.place {
                            let reason = "an inlined copy has no arguments on the stack".to_owned();
                            argument.place = ArgumentPlace::Unreadable(reason);
                        }
                    }
                    take(arguments, &inlined.name)?;
                }
            }
        }
        found.map(|(arguments, _)| arguments).ok_or_else(|| {
            // Who names a provider that is not there has to know that first.
            let is_known = |probe: &&ProbeDescription| {
                is_target_provider(probe)
                    || self
                        .modules_to_come(probes, None)
                        .any(|module| has_provider(module, probe))
            };
            if let Some(probe) = probes.iter().find(|probe| !is_known(probe)) {
                let message = format!("probe description {probe} does not match any probes");
                return Unknown::new("D_PDESC_ZERO", message);
            }
            let message = "failed to resolve the types of args[ ]: the probes of the clause match no function yet";
            Unknown::new("D_ARGS_TYPE", message)
                .with_help("the types of a library that dlopen brings are known once it is mapped: use -p")
        })
    }

    fn variable(&self, name: &str) -> Result<Variable, Unknown> {
        let (scope, of) = divided(name);
        let mut problem = None;
        let mut is_module = scope.is_none();
        for module in self.modules(&[]) {
            if scope.is_some_and(|scope| !is_meant(module, scope)) {
                continue;
            }
            is_module = true;
            let symbol = module.symbol(of);
            if symbol
                .as_ref()
                .is_some_and(|symbol| symbol.kind == SymbolKind::ThreadLocal)
            {
                let message = format!("{name} is thread-local: every thread has its own");
                return Err(Unknown::new("D_SYM_BADREF", message));
            }
            let at = symbol.as_ref().map(|symbol| symbol.address.0);
            let described = debug_info(module).and_then(|info| info.variable(of, at));
            let copy = at.and_then(|at| self.copy_of(module, at));
            if let Some(copy) = copy {
                return Ok(Variable {
                    address: copy.address,
                    value_type: described.ok().map(|variable| variable.value_type).or(copy.value_type),
                });
            }
            let address = match (&described, at) {
                (_, Some(at)) => at,
                (Ok(variable), None) => match variable.address {
                    Some(address) => address,
                    None => continue,
                },
                (Err(why), None) => {
                    problem.get_or_insert(why.clone());
                    continue;
                }
            };
            return Ok(Variable {
                address: module.bias().to_target(ImageAddress(address)).0,
                value_type: described.ok().map(|variable| variable.value_type),
            });
        }
        if !is_module {
            return Err(no_module(name, scope.unwrap_or_default()));
        }
        let message = format!("failed to resolve {name}: Unknown symbol name");
        Err(match problem.and_then(|problem| problem.help()) {
            Some(help) => Unknown::new("D_IDENT_UNDEF", message).with_help(help),
            None => Unknown::new("D_IDENT_UNDEF", message),
        })
    }
}

/// Whether a glob for providers means the functions of a process besides its static probes: what their `args[]` have in
/// common is not looked for.
fn means_both(provider: &str) -> bool {
    let name = provider.trim_end_matches(|last: char| last.is_ascii_digit());
    let digits = provider.get(name.len()..).unwrap_or_default();
    !digits.is_empty() && !glob::is_literal(provider) && glob::matches(provider, &format!("pid{digits}"))
}

/// Keeps of `common` what is the same in another function.
fn agree(common: &mut [Argument], other: &[Argument], first: &str, second: &str) {
    for (index, argument) in common.iter_mut().enumerate() {
        let same = other
            .get(index)
            .is_some_and(|other| other.value_type == argument.value_type && other.place == argument.place);
        if !same {
            argument.place = ArgumentPlace::Unreadable(format!("it is not the same in {first} and in {second}"));
        }
    }
}

fn no_module(what: &str, scope: &str) -> Unknown {
    Unknown::new(
        "D_IDENT_UNDEF",
        format!("failed to resolve {what}: the program has not mapped a module {scope}"),
    )
    .with_help("of a command only the program itself is mapped when it begins: its libraries' variables have no addresses yet; use -p")
}

/// A name's module, if it says one, and the rest. An empty one means any.
fn divided(name: &str) -> (Option<&str>, &str) {
    match name.rsplit_once('`') {
        Some(("", rest)) => (None, rest),
        Some((scope, rest)) => (Some(scope), rest),
        None => (None, name),
    }
}

/// The process and the rest of ``pid123`rest``.
fn numbered(name: &str) -> Option<(i32, &str)> {
    let (pid, rest) = name.strip_prefix("pid")?.split_once('`')?;
    Some((pid.parse().ok()?, rest))
}

fn is_meant(module: &Module, pattern: &str) -> bool {
    module.module_matches(|name| glob::matches(pattern, name))
}

/// The program of a command, from its file.
fn executable(words: &[OsString]) -> Option<Module> {
    let name = Path::new(words.first()?);
    let path = if name.components().count() > 1 {
        name.to_owned()
    } else {
        let folders = std::env::var_os("PATH")?;
        std::env::split_paths(&folders)
            .map(|folder| folder.join(name))
            .find(|path| path.is_file())?
    };
    let path = path.canonicalize().ok()?;
    Some(files::open(&path, &path).ok()?.with_kind(ModuleKind::Executable))
}
