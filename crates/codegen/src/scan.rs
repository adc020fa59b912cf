//! Finds the things that a clause needs before its first statement, in one pass over the clause.

use nanoprobe_lang::glob;
use nanoprobe_lang::layout::recorded_values;
use nanoprobe_lang::program::{
    Builtin, Clause, Expression, ExpressionKind, Function, KeyExpression, Place, ProbeDescription, Program, RecordKind,
    Scope, Side, Statement, Type,
};

use crate::check::check;
use crate::error::Error;
use crate::{ArenaLayout, MAX_EXPRESSION_DEPTH, ProbeKind, StaticSlots};

/// The preparations that the code of a clause must make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// `context->fault` must be 0 at the start, because something may fail.
    pub fault: bool,
    /// The scratch area must be empty at the start.
    pub scratch: bool,
    /// The thread's id must be right before the predicate.
    pub tid_in_predicate: bool,
    /// The thread's id must be right, but only after the predicate.
    pub tid_in_body: bool,
    /// The clause uses all registers or the stack, so the detour must push a full frame.
    pub full_frame: bool,
}

/// The probe and the session that a clause is compiled for.
struct Probe<'a> {
    program: &'a Program,
    kind: ProbeKind,
    arena: &'a ArenaLayout,
}

/// Whether an earlier clause with an `exit()` may fire together with this one. After an `exit()` the rest of that
/// firing must not run.
pub(crate) fn follows_exit(program: &Program, clause: usize) -> bool {
    let Some((found, earlier)) = program.clauses.get(..=clause).and_then(<[Clause]>::split_last) else {
        return false;
    };
    let has_exit = |clause: &&Clause| {
        let is_exit = |statement: &Statement| matches!(statement, Statement::Record(action) if matches!(action.kind, RecordKind::Exit(_)));
        clause.statements.iter().any(is_exit)
    };
    let may_meet = |clause: &Clause| {
        let pairs = clause
            .probes
            .iter()
            .flat_map(|one| found.probes.iter().map(move |other| (one, other)));
        pairs.into_iter().any(|(one, other)| may_be_one_probe(one, other))
    };
    earlier.iter().filter(has_exit).any(may_meet)
}

/// Whether two descriptions may match the same probe. They cannot if they give different functions or
/// names. Modules are not compared, because a module has several names.
fn may_be_one_probe(one: &ProbeDescription, other: &ProbeDescription) -> bool {
    let may_agree = |one: &str, other: &str| match (glob::literal(one), glob::literal(other)) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    };
    may_agree(&one.function, &other.function) && may_agree(&one.name, &other.name)
}

impl Needs {
    /// The needs of a clause. Also checks that the clause is well-formed, and that nothing in it nests too
    /// deep for the recursive code that follows.
    pub(crate) fn of(
        program: &Program,
        clause: &Clause,
        kind: ProbeKind,
        slots: &StaticSlots,
        arena: &ArenaLayout,
    ) -> Result<Needs, Error> {
        let probe = &Probe { program, kind, arena };
        let mut needs = Needs::default();
        if clause.shows_stack(Side::Kernel) {
            return Err(Error::Malformed {
                what: "the kernel's stack in a thread of the program",
                span: clause.span,
            });
        }
        if let Some(predicate) = &clause.predicate {
            needs.expression(predicate, probe)?;
        }
        needs.tid_in_predicate = std::mem::take(&mut needs.tid_in_body);
        for (index, statement) in clause.statements.iter().enumerate() {
            match statement {
                Statement::Expression(expression) => needs.expression(expression, probe)?,
                Statement::Aggregate {
                    keys, value, weight, ..
                } => {
                    let is_static = slots.statements.get(index).is_some_and(Option::is_some);
                    // A key may be too long for its buffer, which is a fault.
                    needs.fault |= !is_static;
                    for key in keys {
                        match key {
                            KeyExpression::Value(expression) => needs.expression(expression, probe)?,
                            KeyExpression::Stack(_) => needs.full_frame = true,
                        }
                    }
                    for expression in value.iter().chain(weight) {
                        needs.expression(expression, probe)?;
                    }
                }
                Statement::Record(action) => {
                    needs.full_frame |= matches!(action.kind, RecordKind::Stack(_));
                    // There may be no speculation of this number.
                    needs.fault |= matches!(
                        action.kind,
                        RecordKind::CommitSpeculation(_) | RecordKind::DiscardSpeculation(_)
                    );
                    for expression in recorded_values(&action.kind) {
                        needs.expression(expression, probe)?;
                    }
                }
            }
        }
        // The header of a record carries the thread's id.
        needs.tid_in_body |= clause.records();
        Ok(needs)
    }

    /// Finds the needs of an expression. It does not recurse, because the depth is not yet known to be bounded.
    fn expression(&mut self, root: &Expression, probe: &Probe<'_>) -> Result<(), Error> {
        let mut pending = vec![(root, 1)];
        while let Some((expression, depth)) = pending.pop() {
            if depth > MAX_EXPRESSION_DEPTH {
                return Err(Error::TooDeep {
                    limit: MAX_EXPRESSION_DEPTH,
                    span: expression.span,
                });
            }
            check(probe.program, expression)?;
            self.node(expression, probe)?;
            pending.extend(expression.operands().into_iter().map(|child| (child, depth + 1)));
        }
        Ok(())
    }

    fn node(&mut self, expression: &Expression, probe: &Probe<'_>) -> Result<(), Error> {
        match &expression.kind {
            ExpressionKind::Builtin(Builtin::Argument(index)) if probe.kind.has_operands() => {
                if let Some(operand) = probe.arena.static_argument(probe.kind, *index)? {
                    self.full_frame |= operand.needs_full_frame();
                    self.fault |= operand.may_fault();
                }
            }
            // The goroutine's number needs no preparation: see `task`.
            ExpressionKind::Builtin(Builtin::Goroutine) => {}
            ExpressionKind::Builtin(Builtin::Tid) => self.tid_in_body = true,
            ExpressionKind::Builtin(Builtin::UserCaller | Builtin::Stack(_)) => self.full_frame = true,
            ExpressionKind::Builtin(Builtin::UserStackDepth) => {
                self.full_frame = true;
                self.fault = true;
                self.scratch = true;
            }
            // Arguments on the stack are in memory, and reading them may fail.
            ExpressionKind::Builtin(Builtin::Argument(6..)) => self.fault |= probe.kind.has_arguments_on_stack(),
            ExpressionKind::Register(_) => {
                self.full_frame = true;
                self.fault = true;
            }
            ExpressionKind::Variable(place)
            | ExpressionKind::Assign { place, .. }
            | ExpressionKind::AssignOperator { place, .. }
            | ExpressionKind::Increment { place, .. } => match place {
                Place::Scalar { scope, .. } => {
                    let is_own = *scope == Scope::ThreadLocal;
                    let is_element = is_own && probe.program.self_is_task;
                    self.tid_in_body |= is_own;
                    self.fault |= is_element;
                    self.scratch |= is_element && expression.value_type == Type::String;
                }
                Place::Field { scope, .. } => {
                    self.tid_in_body |= *scope == Scope::ThreadLocal;
                    self.fault = true;
                }
                Place::Element { scope, .. } => {
                    self.tid_in_body |= *scope == Scope::ThreadLocal;
                    self.fault = true;
                    // A string element is copied into scratch memory.
                    self.scratch |= expression.value_type == Type::String;
                }
                // The use of scratch memory must be tracked, because it decides which addresses may be written.
                Place::Memory { .. } => {
                    self.fault = true;
                    self.scratch = true;
                }
            },
            ExpressionKind::Load(_) => self.fault = true,
            ExpressionKind::Call { function, .. } => match function {
                Function::StringLength
                | Function::Swap16
                | Function::Swap32
                | Function::Swap64
                | Function::ProgenyOf
                | Function::Speculation => {}
                Function::UserFrame => {
                    self.full_frame = true;
                    self.fault = true;
                    self.scratch = true;
                }
                _ => {
                    self.fault = true;
                    self.scratch = true;
                }
            },
            // stringof() of an address copies a string in.
            ExpressionKind::Cast(operand) if expression.value_type == Type::String => {
                let copies = operand.value_type != Type::String;
                self.fault |= copies;
                self.scratch |= copies;
            }
            _ => {}
        }
        Ok(())
    }
}
