//! The D compiler's questions about the traced program ([`Target`]), answered from its modules and their debug
//! information.
//!
//! No file is opened before the first question.
//!
//! A command is stopped before its first instruction, and its libraries are not mapped yet. [`loader`] finds them
//! from its file, as the linker would, so their types are known, but not the addresses of their variables.
//!
//! A name may have its module in front, as in `` a.out`request ``. A name without one is looked for in the program
//! first, then in its libraries in the order in which they were mapped. The process may come before both: ``
//! pid123`request ``.

use std::cell::OnceCell;
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

use crate::acquire::Acquired;
use crate::call_arguments::arguments_of_calls;
use crate::debug::{debug_info, inlined_copies};
use crate::error::SessionError;
use crate::function_arguments::{arguments_of, unknown};
use crate::goroutines;
use crate::probes::{Line, is_target_provider, matching_name, means_inlined, named_process};
use crate::statics::{arguments_at, has_provider, may_be_static};

/// The most functions whose parameters are compared for one clause.
const FUNCTIONS_MAX: usize = 4096;

/// The program of a session, for the compiler. It must live as long as the programs that were compiled with it, since
/// types are read lazily.
pub struct TracedProgram {
    process: Option<Process>,
    /// The process by whose number the text names it: the first one, if this process was executed or forked by it.
    root: Option<i32>,
    /// It is a command before its first instruction.
    is_starting: bool,
    /// If no process was given: the process that a probe or a type of the program names.
    named: OnceCell<Option<Process>>,
    modules: OnceCell<Vec<Module>>,
    /// For a command: the libraries that the linker will map.
    libraries: OnceCell<Vec<Library>>,
}

/// A library that is not mapped yet, represented by its file.
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
    /// The program of the process that was acquired.
    #[must_use]
    pub fn new(acquired: &Acquired) -> TracedProgram {
        TracedProgram {
            process: acquired.process().cloned(),
            root: acquired.root(),
            is_starting: acquired.is_starting(),
            named: OnceCell::new(),
            modules: OnceCell::new(),
            libraries: OnceCell::new(),
        }
    }

    /// Whether the compiler has asked anything: then the program may have types and addresses of this process.
    #[must_use]
    pub fn was_asked(&self) -> bool {
        self.modules.get().is_some()
    }

    /// The process, as far as it is known by now.
    fn process(&self) -> Option<&Process> {
        self.process.as_ref().or_else(|| self.named.get()?.as_ref())
    }

    /// Checks that all answers so far were about the program that the process executes now.
    ///
    /// # Errors
    /// [`SessionError::Executed`]: the questions must be asked again.
    pub fn check_program(&self) -> Result<(), SessionError> {
        match self.process().filter(|process| process.has_executed()) {
            Some(process) => Err(SessionError::Executed { pid: process.pid() }),
            None => Ok(()),
        }
    }

    /// Checks that the running process is not still being started. Called where something was not found.
    ///
    /// # Errors
    /// [`SessionError::Starting`].
    pub fn check_started(&self) -> Result<(), SessionError> {
        match (self.process(), self.modules.get()) {
            (Some(process), Some(modules)) if !self.is_starting && !is_whole(modules) => Err(SessionError::Starting {
                pid: process.pid(),
                error: None,
            }),
            _ => Ok(()),
        }
    }

    /// The modules of a process that the text names. The list is empty where the process cannot be traced, which
    /// the session reports later.
    fn modules_of_named(&self, pid: i32) -> Vec<Module> {
        let named = self.named.get_or_init(|| Process::open(pid).ok());
        named.as_ref().map(modules_of).unwrap_or_default()
    }

    /// The process's modules, the program first. `probes` may name the process where nothing else does.
    fn modules(&self, probes: &[ProbeDescription]) -> &[Module] {
        if let Some(modules) = self.modules.get() {
            return modules;
        }
        let found = match &self.process {
            Some(process) => modules_of(process),
            None => match named_process(probes.iter()) {
                Some((pid, _)) => self.modules_of_named(pid),
                // A later question may name the process.
                None => return &[],
            },
        };
        self.modules.get_or_init(|| found)
    }

    /// Takes the number of a process off a name, ``pid123` ``: it must be this process. Where no process is known
    /// yet, this names it.
    fn of_this_process<'n>(&self, name: &'n str) -> Result<&'n str, Unknown> {
        let Some((pid, rest)) = numbered(name) else {
            return Ok(name);
        };
        if self.process().is_none() && pid > 0 {
            self.modules.get_or_init(|| self.modules_of_named(pid));
        }
        if ![self.process().map(Process::pid), self.root].contains(&Some(pid)) {
            let message = format!("failed to resolve {name}: pid{pid} is not the process that is traced");
            return Err(Unknown::new("D_TYPE_ERR", message).with_help("name it by -p"));
        }
        Ok(rest)
    }

    /// The process's modules, and after them those libraries that the linker of a command will map, if the pattern
    /// matches them. Each is opened when it is reached. Their addresses are not known.
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
        if !self.is_starting {
            return &[];
        }
        self.libraries.get_or_init(|| {
            let path = std::env::var_os("LD_LIBRARY_PATH");
            let program = self.modules(&[]).first();
            let found = program.map(|program| loader::libraries(program, path.as_deref()));
            let library = |needed| Library {
                needed,
                module: OnceCell::new(),
            };
            found.unwrap_or_default().into_iter().map(library).collect()
        })
    }

    /// Asks the modules that a name may mean, in order, until one has the name.
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
                // An error in the program's own debug information is a more likely cause than a library without the
                // name.
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

    /// The functions whose inlined copies a probe matches; a module that cannot be read has none.
    fn inlined(&self, module: &Module, probe: &ProbeDescription) -> Rc<Vec<Inlined>> {
        match means_inlined(probe) {
            true => inlined_copies(module, &probe.function, Demangle::Auto),
            false => Rc::default(),
        }
    }
}

impl TracedProgram {
    /// A library's variable that lies in the program, where the loader has copied it (`stdout`, `environ`). It is found
    /// by the library's name and by the program's. Only the library may describe its type.
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
            let of_calls = arguments_of_calls(self, probe)?;
            let are_calls = of_calls.is_some();
            let is_static = may_be_static(probe) && !means_both(&probe.provider);
            if !is_static && !is_target_provider(probe) && !are_calls {
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
            for (arguments, name) in of_calls.into_iter().flatten() {
                take(arguments, &name)?;
            }
            if are_calls {
                continue;
            }
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
                for inlined in &*self.inlined(module, probe) {
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
            // If the provider does not exist, that is the more important error.
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

/// Whether a glob for providers means a process's functions as well as its static probes. Then their `args[]` are
/// not compared.
fn means_both(provider: &str) -> bool {
    let name = provider.trim_end_matches(|last: char| last.is_ascii_digit());
    let digits = provider.get(name.len()..).unwrap_or_default();
    !digits.is_empty() && !glob::is_literal(provider) && glob::matches(provider, &format!("pid{digits}"))
}

/// Marks the arguments in `common` that are not the same in another function.
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
    .with_help(
        "at a command's start only the program itself is mapped, and its libraries' variables have no addresses yet; \
         use -p",
    )
}

/// The module in a name, if it has one, and the rest. An empty module means any.
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
