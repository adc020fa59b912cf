//! A program as text, for tests, and for users who want to see the compiled form of their clauses.
//!
//! A type follows each expression, unless the operands decide the type:
//!
//! ```text
//! global int64_t ts[string, int]
//! aggregation @ = quantize[ustack]
//! clause pid$target::f:entry
//!   predicate ((int64_t)x == arg0)
//!   x = (int)arg1
//! ```

use crate::check::function_name;
use crate::format::Format;
use crate::lower::arithmetic::symbol;
use crate::program::{
    AggregatingFunction, AggregationId, Builtin, Expression, ExpressionKind, KeyExpression, KeyType, LogicalOperator,
    OtherPart, Place, Program, RecordKind, Scope, Stack, Statement, SymbolKind, Type, UnaryOperator, Variable,
};
use crate::types;
use std::fmt::Write;

/// The program as text, one line for each thing.
#[must_use]
pub fn dump(program: &Program) -> String {
    let mut out = String::new();
    let dump = Dump { program };
    // Writing to a String cannot fail.
    let _ = dump.program(&mut out);
    out
}

struct Dump<'p> {
    program: &'p Program,
}

impl Dump<'_> {
    fn program(&self, out: &mut String) -> std::fmt::Result {
        for pragma in &self.program.pragmas {
            match &pragma.value {
                Some(value) => writeln!(out, "option {}={value}", pragma.name)?,
                None => writeln!(out, "option {}", pragma.name)?,
            }
        }
        let scopes = [
            ("global", &self.program.globals),
            ("self", &self.program.thread_locals),
            ("this", &self.program.clause_locals),
        ];
        for (scope, variables) in scopes {
            for variable in variables {
                writeln!(out, "{scope} {}", declared(variable))?;
            }
        }
        for aggregation in &self.program.aggregations {
            let keys: Vec<String> = aggregation.keys.iter().map(key_type).collect();
            writeln!(
                out,
                "aggregation {} = {}[{}]",
                aggregation.name,
                function(aggregation.function),
                keys.join(", ")
            )?;
        }
        for clause in &self.program.clauses {
            let probes: Vec<String> = clause.probes.iter().map(ToString::to_string).collect();
            writeln!(out, "clause {}", probes.join(", "))?;
            if let Some(predicate) = &clause.predicate {
                writeln!(out, "  predicate {}", self.expression(predicate))?;
            }
            for statement in &clause.statements {
                writeln!(out, "  {}", self.statement(statement))?;
            }
        }
        Ok(())
    }

    fn statement(&self, statement: &Statement) -> String {
        match statement {
            Statement::Expression(expression) => self.expression(expression),
            Statement::Aggregate {
                aggregation,
                keys,
                value,
                weight,
                ..
            } => {
                let keys: Vec<String> = keys
                    .iter()
                    .map(|key| match key {
                        KeyExpression::Value(value) => self.typed(value),
                        KeyExpression::Stack(stack) => dumped_stack(*stack),
                    })
                    .collect();
                let mut arguments: Vec<String> = value.iter().map(|value| self.typed(value)).collect();
                arguments.extend(weight.iter().map(|weight| format!("weight {}", self.typed(weight))));
                format!(
                    "{}[{}] <- {}",
                    self.aggregation(*aggregation),
                    keys.join(", "),
                    arguments.join(", ")
                )
            }
            Statement::Record(action) => self.record(&action.kind),
        }
    }

    fn formatted(&self, name: &str, format: &Format, arguments: &[Expression]) -> String {
        let arguments: String = arguments.iter().map(|a| format!(", {}", self.typed(a))).collect();
        format!("{name} {:?}{arguments}", format.text)
    }

    fn record(&self, kind: &RecordKind) -> String {
        match kind {
            RecordKind::Trace(value) => format!("trace {}", self.typed(value)),
            RecordKind::TraceName { value, of } => format!("trace {} {}", of.name(), self.typed(value)),
            RecordKind::TraceMemory(values) => {
                let values: Vec<String> = values.iter().map(|value| self.typed(value)).collect();
                format!("tracemem {}", values.join(", "))
            }
            RecordKind::Printf { format, arguments } => self.formatted("printf", format, arguments),
            RecordKind::Printa { format, aggregations } => {
                let format = format
                    .as_ref()
                    .map(|format| format!("{:?}, ", format.text))
                    .unwrap_or_default();
                let names: Vec<String> = aggregations.iter().map(|id| self.aggregation(*id)).collect();
                format!("printa {format}{}", names.join(", "))
            }
            RecordKind::Stack(stack) => format!("{} {}", stack.side.name(), stack.frames),
            RecordKind::Symbol { kind, address } => format!("{} {}", symbol_name(*kind), self.typed(address)),
            RecordKind::Exit(status) => format!("exit {}", self.typed(status)),
            RecordKind::Clear(id) => format!("clear {}", self.aggregation(*id)),
            RecordKind::Truncate {
                aggregation,
                count: None,
            } => format!("trunc {}", self.aggregation(*aggregation)),
            RecordKind::Truncate {
                aggregation,
                count: Some(count),
            } => {
                format!("trunc {}, {}", self.aggregation(*aggregation), self.typed(count))
            }
            RecordKind::Normalize { aggregation, factor } => {
                format!("normalize {}, {}", self.aggregation(*aggregation), self.typed(factor))
            }
            RecordKind::Denormalize(id) => format!("denormalize {}", self.aggregation(*id)),
            RecordKind::PrintAt { values, shown } => {
                let values: Vec<String> = values.iter().map(|value| self.typed(value)).collect();
                format!("print {} as {}", values.join(" to "), types::name(shown))
            }
            RecordKind::Print { value, shown } => format!("print {} as {}", self.typed(value), types::name(shown)),
            RecordKind::System { format, arguments } => self.formatted("system", format, arguments),
            RecordKind::Reopen { format, arguments } => self.formatted("freopen", format, arguments),
            RecordKind::TruncateOutput => "ftruncate".to_owned(),
            RecordKind::SetOption(arguments) => {
                let arguments: Vec<String> = arguments.iter().map(|argument| self.typed(argument)).collect();
                format!("setopt {}", arguments.join(", "))
            }
            RecordKind::Stop => "stop".to_owned(),
            RecordKind::Raise(signal) => format!("raise {}", self.typed(signal)),
            RecordKind::Speculate(id) => format!("speculate {}", self.typed(id)),
            RecordKind::CommitSpeculation(id) => format!("commit {}", self.typed(id)),
            RecordKind::DiscardSpeculation(id) => format!("discard {}", self.typed(id)),
        }
    }

    fn aggregation(&self, id: AggregationId) -> String {
        match self.program.aggregations.get(id.0 as usize) {
            Some(aggregation) => aggregation.name.clone(),
            None => format!("@?{}", id.0),
        }
    }

    /// An expression and its type.
    fn typed(&self, of: &Expression) -> String {
        format!("{}: {}", self.expression(of), types::name(&of.value_type))
    }

    fn expression(&self, of: &Expression) -> String {
        match &of.kind {
            ExpressionKind::Integer(value) if of.value_type == Type::I32 => value.to_string(),
            ExpressionKind::Integer(value) if matches!(of.value_type, Type::Integer(t) if !t.signed) => {
                format!("{}:{}", *value as u64, types::name(&of.value_type))
            }
            ExpressionKind::Integer(value) => format!("{value}:{}", types::name(&of.value_type)),
            ExpressionKind::String(text) => match std::str::from_utf8(text) {
                Ok(text) => format!("{text:?}"),
                Err(_) => format!("\"{}\"", text.escape_ascii()),
            },
            ExpressionKind::Builtin(builtin) => builtin_name(*builtin),
            ExpressionKind::Register(index) => format!("uregs[{}]", self.expression(index)),
            ExpressionKind::Variable(place) => self.place(place),
            ExpressionKind::Unary { operator, operand } => {
                let mark = match operator {
                    UnaryOperator::Negate => "-",
                    UnaryOperator::Complement => "~",
                    UnaryOperator::Not => "!",
                };
                format!("{mark}{}", self.expression(operand))
            }
            ExpressionKind::Binary { operator, left, right } => {
                format!(
                    "({} {} {})",
                    self.expression(left),
                    symbol(*operator),
                    self.expression(right)
                )
            }
            ExpressionKind::Logical { operator, left, right } => {
                let mark = match operator {
                    LogicalOperator::And => "&&",
                    LogicalOperator::Or => "||",
                    LogicalOperator::Xor => "^^",
                };
                format!("({} {mark} {})", self.expression(left), self.expression(right))
            }
            ExpressionKind::Conditional {
                condition,
                then,
                otherwise,
            } => format!(
                "({} ? {} : {})",
                self.expression(condition),
                self.expression(then),
                self.expression(otherwise)
            ),
            ExpressionKind::Cast(operand) => {
                format!("({}){}", types::name(&of.value_type), self.expression(operand))
            }
            ExpressionKind::Narrow(value) => format!("{}:{}", self.expression(value), types::name(&of.value_type)),
            ExpressionKind::Assign { place, value } => format!("{} = {}", self.place(place), self.expression(value)),
            ExpressionKind::AssignOperator { place, operator, value } => {
                format!("{} {}= {}", self.place(place), symbol(*operator), self.typed(value))
            }
            ExpressionKind::Increment { place, delta, post } => {
                let when = if *post { "after" } else { "before" };
                format!("{} += {delta} {when}", self.place(place))
            }
            ExpressionKind::Comma { first, second } => {
                format!("({}, {})", self.expression(first), self.expression(second))
            }
            ExpressionKind::Call { function, arguments } => {
                let name = function.name();
                format!("{name}({})", self.list(arguments))
            }
            ExpressionKind::Load(address) => format!("*{}[{}]", types::name(&of.value_type), self.expression(address)),
        }
    }

    fn list(&self, expressions: &[Expression]) -> String {
        let texts: Vec<String> = expressions
            .iter()
            .map(|expression| self.expression(expression))
            .collect();
        texts.join(", ")
    }

    fn place(&self, place: &Place) -> String {
        let (scope, variable, keys) = match place {
            Place::Scalar { scope, variable } => (scope, variable, None),
            Place::Element { scope, variable, keys } => (scope, variable, Some(keys)),
            Place::Field {
                scope,
                variable,
                offset,
                value_type,
            } => {
                let whole = self.place(&Place::Scalar {
                    scope: *scope,
                    variable: *variable,
                });
                return format!("{whole}.{}[{}]", types::name(value_type), self.expression(offset));
            }
            Place::Memory { address, value_type } => {
                return format!("*{}[{}]", types::name(value_type), self.expression(address));
            }
        };
        let (prefix, variables) = match scope {
            Scope::Global => ("", &self.program.globals),
            Scope::ThreadLocal => ("self->", &self.program.thread_locals),
            Scope::ClauseLocal => ("this->", &self.program.clause_locals),
        };
        let name = variables
            .get(variable.0 as usize)
            .map_or("?", |variable| variable.name.as_str());
        match keys {
            None => format!("{prefix}{name}"),
            Some(keys) => format!("{prefix}{name}[{}]", self.list(keys)),
        }
    }
}

fn declared(variable: &Variable) -> String {
    let name = format!("{} {}", types::name(&variable.value_type), variable.name);
    match &variable.keys {
        None => name,
        Some(keys) => {
            let keys: Vec<String> = keys.iter().map(types::name).collect();
            format!("{name}[{}]", keys.join(", "))
        }
    }
}

fn key_type(of: &KeyType) -> String {
    match of {
        KeyType::Integer(integer) => types::integer_name(*integer).to_owned(),
        KeyType::Enumeration(of) => of.name().to_owned(),
        KeyType::String | KeyType::Function => "string".to_owned(),
        KeyType::Bytes { size } => format!("bytes({size})"),
        KeyType::Stack(stack) => dumped_stack(*stack),
        KeyType::Symbol(kind) => symbol_name(*kind).to_owned(),
    }
}

fn dumped_stack(stack: Stack) -> String {
    format!("{}({})", stack.side.name(), stack.frames)
}

fn symbol_name(of: SymbolKind) -> &'static str {
    match of {
        SymbolKind::Address => "uaddr",
        SymbolKind::Function => "usym",
        SymbolKind::Module => "umod",
    }
}

fn function(of: AggregatingFunction) -> String {
    let name = function_name(of);
    match of {
        AggregatingFunction::LinearQuantize { base, limit, step } => format!("{name}({base}, {limit}, {step})"),
        AggregatingFunction::LogLinearQuantize {
            factor,
            low,
            high,
            steps,
        } => {
            format!("{name}({factor}, {low}, {high}, {steps})")
        }
        _ => name.to_owned(),
    }
}

/// The name of a built-in variable in D.
fn builtin_name(of: Builtin) -> String {
    match of {
        Builtin::Argument(index) => return format!("arg{index}"),
        Builtin::Stack(stack) => return dumped_stack(stack),
        Builtin::TargetPid => "$target",
        Builtin::Other(part) => {
            let number = u8::from(!OtherPart::of_argument(0).contains(&part));
            return format!("args[{number}]->{}", part.member());
        }
        other => other.row_name().unwrap_or_default(),
    }
    .to_owned()
}
