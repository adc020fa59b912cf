//! The estimated cost of a hit, in ns: the cost of reaching the site's handlers, and the cost of its clauses.
//!
//! The figures come from the machine of docs/benchmarks.md, rounded; each was measured alone. `pace` adapts them to
//! other machines, and `nanoprobe bench --only cost` measures the error that remains. The estimate is within 30 % of
//! the measured costs of usual clauses: caches and predictors make up the rest.

use nanoprobe_lang::layout::recorded_values;
use nanoprobe_lang::program::{
    Builtin, Clause, Expression, ExpressionKind, Function, KeyExpression, Place, RecordKind, Scope, Statement,
};
use nanoprobe_session::{Patch, TrapForm};

/// A jump to the detour and back, with a count in between.
const JUMP_NS: f64 = 0.8;
/// The return address is replaced, and a thunk returns to the original one.
const RETURN_ADDRESS_NS: f64 = 24.0;
/// The cost of a signal and its handler.
const TRAP_NS: f64 = 1100.0;
/// The cost of a signal, a single-step, and another signal.
const STEP_NS: f64 = 15_500.0;

/// The cost of calling a handler, which does more than count.
const HANDLER_NS: f64 = 1.0;
/// The cost of one read of the time stamp counter.
const CLOCK_NS: f64 = 9.0;
/// The begin and commit of a record, with the time stamp counter and the processor's number.
const RECORD_NS: f64 = 13.5;
/// The cost of a time in a clause that records: the record's time stamp is converted to ns.
const RECORDED_CLOCK_NS: f64 = 1.2;
/// The cost of storing one value into a record.
const FIELD_NS: f64 = 0.5;
/// The cost of looking up an aggregation's slot, for a key that is known only at the hit.
const KEY_NS: f64 = 9.0;
/// The cost of updating an aggregation that does more than count.
const VALUE_NS: f64 = 1.7;
/// The cost of walking a stack by unwinding tables.
const STACK_NS: f64 = 70.0;
/// The cost of reading a string of the target.
const STRING_NS: f64 = 5.0;
/// A few bytes read out of the target.
const MEMORY_NS: f64 = 2.0;
/// A string function.
const TEXT_NS: f64 = 8.0;
/// One access to an associative array: a bucket is locked and searched.
const ELEMENT_NS: f64 = 25.0;
/// A short system call: `vtimestamp`, `threadname`, `cwd`.
const KERNEL_NS: f64 = 200.0;
/// A system call that looks something up in /proc: `fds[n].fi_pathname`.
const LOOK_UP_NS: f64 = 1150.0;
/// A variable or an operator: a few instructions.
const OPERATION_NS: f64 = 0.3;

/// The cost of the way from a site to its handlers and back.
pub fn site_ns(patch: Option<&Patch>) -> f64 {
    let Some(patch) = patch else { return JUMP_NS };
    let trap = match patch.built.form {
        Some(TrapForm::Step) => STEP_NS,
        Some(TrapForm::Emulate | TrapForm::Boost) => TRAP_NS,
        None => JUMP_NS,
    };
    trap + if patch.takes_return { RETURN_ADDRESS_NS } else { 0.0 }
}

/// The additional cost of a clause, compared with a count.
pub fn clause_ns(clause: &Clause) -> f64 {
    let in_front = Work { clock_ns: CLOCK_NS };
    let (record, work) = if clause.records() {
        let work = Work {
            clock_ns: RECORDED_CLOCK_NS,
        };
        (RECORD_NS, work)
    } else {
        (0.0, in_front)
    };
    let predicate = clause
        .predicate
        .as_ref()
        .map_or(0.0, |predicate| in_front.expression_ns(predicate));
    let statements: f64 = clause
        .statements
        .iter()
        .map(|statement| work.statement_ns(statement))
        .sum();
    let work = predicate + statements + record;
    if work > 0.0 { HANDLER_NS + work } else { 0.0 }
}

/// The costs that differ between clauses that record and clauses that do not.
#[derive(Clone, Copy)]
struct Work {
    /// The cost of `timestamp` and the like.
    clock_ns: f64,
}

impl Work {
    fn statement_ns(self, statement: &Statement) -> f64 {
        match statement {
            Statement::Expression(expression) => self.expression_ns(expression),
            Statement::Aggregate {
                keys, value, weight, ..
            } => {
                let elements: f64 = keys.iter().map(|key| self.key_ns(key)).sum();
                let computed = if keys.iter().all(is_known) { 0.0 } else { KEY_NS };
                let value = value.as_ref().map_or(0.0, |value| VALUE_NS + self.expression_ns(value));
                elements + computed + value + weight.as_ref().map_or(0.0, |weight| self.expression_ns(weight))
            }
            Statement::Record(action) => match &action.kind {
                RecordKind::Stack(_) => STACK_NS,
                RecordKind::Printa { .. }
                | RecordKind::Clear(_)
                | RecordKind::Truncate { .. }
                | RecordKind::Normalize { .. }
                | RecordKind::Denormalize(_) => 0.0,
                kind => recorded_values(kind)
                    .iter()
                    .map(|value| FIELD_NS + self.expression_ns(value))
                    .sum(),
            },
        }
    }

    fn key_ns(self, key: &KeyExpression) -> f64 {
        match key {
            KeyExpression::Stack(_) => STACK_NS,
            KeyExpression::Value(_) if is_known(key) => 0.0,
            KeyExpression::Value(value) => self.expression_ns(value),
        }
    }

    fn expression_ns(self, expression: &Expression) -> f64 {
        let sum = |parts: &[&Expression]| -> f64 { parts.iter().map(|part| self.expression_ns(part)).sum() };
        match &expression.kind {
            ExpressionKind::Integer(_) | ExpressionKind::String(_) => 0.0,
            ExpressionKind::Builtin(Builtin::Timestamp | Builtin::WallTimestamp) => self.clock_ns,
            ExpressionKind::Builtin(Builtin::VirtualTimestamp) => KERNEL_NS,
            ExpressionKind::Builtin(Builtin::Cpu | Builtin::UserCaller | Builtin::Errno | Builtin::Goroutine) => {
                MEMORY_NS
            }
            ExpressionKind::Builtin(Builtin::UserStackDepth | Builtin::Stack(_)) => STACK_NS,
            ExpressionKind::Builtin(_) => OPERATION_NS,
            ExpressionKind::Variable(place) => self.place_ns(place),
            ExpressionKind::Register(operand)
            | ExpressionKind::Unary { operand, .. }
            | ExpressionKind::Cast(operand)
            | ExpressionKind::Narrow(operand) => OPERATION_NS + self.expression_ns(operand),
            ExpressionKind::Load(address) => MEMORY_NS + self.expression_ns(address),
            ExpressionKind::Binary { left, right, .. } | ExpressionKind::Logical { left, right, .. } => {
                OPERATION_NS + sum(&[left, right])
            }
            // Only one of the two operands is evaluated; the more expensive operand counts.
            ExpressionKind::Conditional {
                condition,
                then,
                otherwise,
            } => self.expression_ns(condition) + self.expression_ns(then).max(self.expression_ns(otherwise)),
            ExpressionKind::Assign { place, value } | ExpressionKind::AssignOperator { place, value, .. } => {
                self.place_ns(place) + self.expression_ns(value)
            }
            ExpressionKind::Increment { place, .. } => OPERATION_NS + self.place_ns(place),
            ExpressionKind::Comma { first, second } => sum(&[first, second]),
            ExpressionKind::Call { function, arguments } => {
                let arguments: f64 = arguments.iter().map(|part| self.expression_ns(part)).sum();
                arguments
                    + match function {
                        Function::CopyInString => STRING_NS,
                        Function::CopyIn | Function::CopyInTo | Function::Allocate | Function::SignalFrame => MEMORY_NS,
                        Function::ThreadName | Function::FileStatus | Function::Socket | Function::SocketAddress => {
                            KERNEL_NS
                        }
                        Function::UserFrame => STACK_NS,
                        Function::Path | Function::FileSystem => LOOK_UP_NS,
                        Function::Swap16 | Function::Swap32 | Function::Swap64 | Function::Random => OPERATION_NS,
                        _ => TEXT_NS,
                    }
            }
        }
    }

    fn place_ns(self, place: &Place) -> f64 {
        match place {
            Place::Scalar {
                scope: Scope::Global | Scope::ThreadLocal | Scope::ClauseLocal,
                ..
            } => OPERATION_NS,
            Place::Element { keys, .. } => ELEMENT_NS + keys.iter().map(|part| self.expression_ns(part)).sum::<f64>(),
            Place::Field { offset, .. } => OPERATION_NS + self.expression_ns(offset),
            Place::Memory { address, .. } => MEMORY_NS + self.expression_ns(address),
        }
    }
}

/// Whether a key is the same at every hit of a probe. If so, its slot is fixed.
fn is_known(key: &KeyExpression) -> bool {
    let KeyExpression::Value(value) = key else { return false };
    matches!(
        value.kind,
        ExpressionKind::Integer(_)
            | ExpressionKind::String(_)
            | ExpressionKind::Builtin(
                Builtin::ProbeProvider
                    | Builtin::ProbeModule
                    | Builtin::ProbeFunction
                    | Builtin::ProbeName
                    | Builtin::ProbeId
                    | Builtin::EnabledProbeId
            )
    )
}

#[cfg(test)]
mod tests {
    use nanoprobe_lang::{MacroValues, Source};

    use super::*;

    fn ns(text: &str) -> f64 {
        let macros = MacroValues {
            target: Some(1),
            ..MacroValues::default()
        };
        let program = nanoprobe_lang::compile(&[Source::new("test", text)], &macros).expect("a program");
        program.clauses.iter().map(clause_ns).sum()
    }

    #[test]
    fn a_count_is_free_and_expensive_clauses_cost_more() {
        assert_eq!(ns("pid$target:::entry { @ = count(); }"), 0.0);
        assert_eq!(ns("pid$target:::entry { @[probefunc] = count(); }"), 0.0);
        let (string, stack) = (
            ns("pid$target:::entry { @[copyinstr(arg0)] = count(); }"),
            ns("pid$target:::entry { @[ustack()] = count(); }"),
        );
        assert!(0.0 < string && 3.0 * string < stack, "{string} {stack}");
        assert!(ns("pid$target:::entry { trace(timestamp); }") > ns("pid$target:::entry { trace(arg0); }") + 0.5);
        // The record already has a time; a clause without a record reads the clock.
        assert!(ns("pid$target:::entry { self->t = timestamp; }") > ns("pid$target:::entry { self->t = arg0; }") + 7.0);
    }

    /// The figures of docs/benchmarks.md: within 30 %.
    #[test]
    fn the_estimates_are_near_what_was_measured() {
        for (text, measured) in [
            ("pid$target:::entry { @[copyinstr(arg0)] = count(); }", 16.4),
            ("pid$target:::entry { @ = quantize(arg1); }", 3.5),
            ("pid$target:::entry { @[ustack()] = count(); }", 77.9),
            ("pid$target:::entry { trace(arg0); trace(arg1); }", 16.7),
            (
                "pid$target:::entry { trace(timestamp); trace(arg0); trace(arg1); }",
                17.7,
            ),
            (
                "pid$target:::entry { self->t = timestamp; } \
                 pid$target:::return /self->t/ { @ = quantize(timestamp - self->t); self->t = 0; }",
                25.9,
            ),
        ] {
            let hits = text.matches("pid$target").count() as f64;
            let ratio = (ns(text) + hits * JUMP_NS) / measured;
            assert!((0.7..1.3).contains(&ratio), "{text}: {ratio} of {measured} ns");
        }
    }
}
