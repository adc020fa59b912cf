//! Static aggregation slots, for aggregations whose key an enabling knows in advance.
//!
//! Most aggregations of a script have the same key at every hit of one enabling: no key, or the probe's
//! names. Then their value words lie at a fixed place in each thread's context:
//!
//! ```text
//!    context + enabling->slot_base + 0        words of the clause's first static statement
//!                                  + 8 * n    words of the second ...
//! ```
//!
//! The tracer adds these words up over all contexts and enablings under [`static_key`]. It also adds the
//! entries of the hash tables that have the same key. A key with `pid` is that of the context's process
//! ([`is_key_of_process`]).

use nanoprobe_arena::buckets;
use nanoprobe_lang::interpret::{key, normalise};
use nanoprobe_lang::layout::Limits;
use nanoprobe_lang::program::{
    AggregatingFunction, Builtin, Expression, ExpressionKind, KeyExpression, Program, Statement, Type,
};

/// Which aggregating statements of a clause are static, and the places of their value words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StaticSlots {
    /// For each statement: the byte offset in the enabling's slots, and the number of u64 words. `None`: the
    /// statement is no aggregation, or its key is made at run time.
    pub statements: Vec<Option<(u32, u32)>>,
    /// The bytes of all slots of one enabling.
    pub bytes: u32,
}

impl StaticSlots {
    /// Whether a statement has a fixed place.
    pub fn has(&self, statement: usize) -> bool {
        self.statements.get(statement).is_some_and(Option::is_some)
    }
}

/// The values of an enabling's probe that may be part of a static key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeNames {
    /// `probeprov`.
    pub provider: String,
    /// `probemod`.
    pub module: String,
    /// `probefunc`.
    pub function: String,
    /// `probename`.
    pub name: String,
    /// `epid`.
    pub epid: u32,
    /// `id`.
    pub probe_id: u32,
    /// `pid`.
    pub pid: u32,
    /// `$target`.
    pub target_pid: u32,
}

/// The number of u64 words of one value of an aggregating function (`agent/contract.h`, "Value words").
pub fn value_words(function: AggregatingFunction) -> u32 {
    match function {
        AggregatingFunction::Count => 1,
        AggregatingFunction::Sum | AggregatingFunction::Average => 2,
        AggregatingFunction::Minimum | AggregatingFunction::Maximum | AggregatingFunction::StandardDeviation => 4,
        AggregatingFunction::Quantize => saturate(buckets::QUANTIZE_WORDS),
        AggregatingFunction::LinearQuantize { .. } => u32::from(function.levels()) + 2,
        AggregatingFunction::LogLinearQuantize { .. } => {
            saturate(buckets::llquantize_buckets(function.packed_parameters()))
        }
    }
}

fn saturate(words: usize) -> u32 {
    u32::try_from(words).unwrap_or(u32::MAX)
}

/// Finds the static statements of the clause with the index `clause`. If there is no such clause, the result is empty.
pub fn static_slots(program: &Program, clause: usize) -> StaticSlots {
    let mut slots = StaticSlots::default();
    let statements = program.clauses.get(clause).map_or(&[][..], |clause| &clause.statements);
    for statement in statements {
        let words = match statement {
            Statement::Aggregate { aggregation, keys, .. } if keys.iter().all(is_static) => program
                .aggregations
                .get(aggregation.0 as usize)
                .map(|found| value_words(found.function)),
            _ => None,
        };
        slots.statements.push(words.map(|words| (slots.bytes, words)));
        slots.bytes = slots.bytes.saturating_add(words.unwrap_or(0).saturating_mul(8));
    }
    slots
}

/// Which names of a probe are part of the keys of a clause's static statements. Enablings that agree in
/// these names have the same keys, and may share their slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyNames {
    /// `probeprov`.
    pub provider: bool,
    /// `probemod`.
    pub module: bool,
    /// `probefunc`.
    pub function: bool,
    /// `probename`, `id` or `epid`, which differ between any two probes.
    pub probe: bool,
}

/// The names that are part of the clause's static keys.
pub fn static_names(program: &Program, clause: usize) -> KeyNames {
    let mut names = KeyNames::default();
    let slots = static_slots(program, clause);
    let statements = program.clauses.get(clause).map_or(&[][..], |clause| &clause.statements);
    for (statement, slot) in statements.iter().zip(&slots.statements) {
        let (Statement::Aggregate { keys, .. }, Some(_)) = (statement, slot) else {
            continue;
        };
        for key in keys {
            let KeyExpression::Value(expression) = key else {
                continue;
            };
            let mut expression = expression;
            while let ExpressionKind::Cast(operand) = &expression.kind {
                expression = operand;
            }
            match expression.kind {
                ExpressionKind::Builtin(Builtin::ProbeProvider) => names.provider = true,
                ExpressionKind::Builtin(Builtin::ProbeModule) => names.module = true,
                ExpressionKind::Builtin(Builtin::ProbeFunction) => names.function = true,
                ExpressionKind::Builtin(Builtin::ProbeName | Builtin::ProbeId | Builtin::EnabledProbeId) => {
                    names.probe = true;
                }
                _ => {}
            }
        }
    }
    names
}

/// The key of a static statement at a probe with these names, encoded as in struct np_aggregate_entry. The key is empty
/// for an aggregation without keys. `None`: the statement is not static.
pub fn static_key(
    program: &Program,
    clause: usize,
    statement: usize,
    names: &ProbeNames,
    limits: Limits,
) -> Option<Vec<u8>> {
    let Statement::Aggregate { keys, .. } = program.clauses.get(clause)?.statements.get(statement)? else {
        return None;
    };
    let mut bytes = Vec::new();
    for key in keys {
        let KeyExpression::Value(expression) = key else {
            return None;
        };
        match static_value(expression, names)? {
            StaticValue::Integer(value) => key::push_integer(&mut bytes, value),
            StaticValue::String(text) => key::push_string(&mut bytes, text, limits.string_limit()),
        }
    }
    Some(bytes)
}

/// If one hit does nothing but increment static slots: the byte offsets of these slots. The clause has
/// only `count()` with static keys, no predicate, records nothing, and no earlier clause's `exit()` may
/// end the firing. Then the detour needs no handler. An offset that appears twice is incremented twice.
pub fn inline_counts(program: &Program, clause: usize) -> Option<Vec<u32>> {
    let found = program.clauses.get(clause)?;
    if found.predicate.is_some() || found.statements.is_empty() || crate::scan::follows_exit(program, clause) {
        return None;
    }
    let slots = static_slots(program, clause);
    found
        .statements
        .iter()
        .zip(&slots.statements)
        .map(|(statement, slot)| match statement {
            Statement::Aggregate { aggregation, .. } => {
                let function = program.aggregations.get(aggregation.0 as usize)?.function;
                slot.filter(|_| function == AggregatingFunction::Count)
                    .map(|(offset, _)| offset)
            }
            _ => None,
        })
        .collect()
}

/// An element of a key that is known in advance.
enum StaticValue<'a> {
    Integer(i64),
    String(&'a [u8]),
}

/// Whether the key of a static statement is another one in each process. If children are followed, a context may pass
/// from one process to another. The tracer takes the values of its slots before that.
pub fn is_key_of_process(program: &Program, clause: usize, statement: usize) -> bool {
    let statement = program
        .clauses
        .get(clause)
        .and_then(|clause| clause.statements.get(statement));
    match statement {
        Some(Statement::Aggregate { keys, .. }) if program.follows => {
            let mut values = keys.iter().filter_map(|key| match key {
                KeyExpression::Value(expression) => Some(expression),
                KeyExpression::Stack { .. } => None,
            });
            values.any(is_pid)
        }
        _ => false,
    }
}

fn is_static(key: &KeyExpression) -> bool {
    match key {
        KeyExpression::Value(expression) => static_value(expression, &ProbeNames::default()).is_some(),
        KeyExpression::Stack(_) => false,
    }
}

fn is_pid(expression: &Expression) -> bool {
    match &expression.kind {
        ExpressionKind::Builtin(Builtin::Pid) => true,
        ExpressionKind::Cast(operand) => is_pid(operand),
        _ => false,
    }
}

fn static_value<'a>(expression: &'a Expression, names: &'a ProbeNames) -> Option<StaticValue<'a>> {
    let integer = |value: u32| match expression.value_type {
        Type::Integer(to) => Some(StaticValue::Integer(normalise(i64::from(value), to))),
        _ => None,
    };
    match &expression.kind {
        // The string NULL cannot be part of a key.
        ExpressionKind::Integer(_) if expression.value_type == Type::String => None,
        ExpressionKind::Integer(value) => Some(StaticValue::Integer(*value)),
        ExpressionKind::String(text) => Some(StaticValue::String(text)),
        ExpressionKind::Builtin(builtin) => match builtin {
            Builtin::ProbeProvider => Some(StaticValue::String(names.provider.as_bytes())),
            Builtin::ProbeModule => Some(StaticValue::String(names.module.as_bytes())),
            Builtin::ProbeFunction => Some(StaticValue::String(names.function.as_bytes())),
            Builtin::ProbeName => Some(StaticValue::String(names.name.as_bytes())),
            Builtin::EnabledProbeId => integer(names.epid),
            Builtin::ProbeId => integer(names.probe_id),
            Builtin::Pid => integer(names.pid),
            Builtin::TargetPid => integer(names.target_pid),
            _ => None,
        },
        ExpressionKind::Cast(operand) => match (static_value(operand, names)?, &expression.value_type) {
            (StaticValue::Integer(value), Type::Integer(to)) => Some(StaticValue::Integer(normalise(value, *to))),
            (StaticValue::String(text), Type::String) => Some(StaticValue::String(text)),
            _ => None,
        },
        _ => None,
    }
}
