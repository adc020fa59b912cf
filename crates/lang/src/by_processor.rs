//! The options `cpu` and `aggpercpu`: how they change a program.
//!
//! ```text
//! cpu=2        clause /predicate/  ->  clause /cpu == 2 && predicate/
//! aggpercpu    @a[key]             ->  @a[key, cpu], with Aggregation::by_processor set, which only the printer reads
//! ```
//!
//! Both options are DTrace's. DTrace enables probes on one processor. Here every thread records, so
//! the program itself tests the processor.

use crate::MacroValues;
use crate::options::Options;
use crate::program::{
    BinaryOperator, Builtin, Expression, ExpressionKind, IntegerType, KeyExpression, KeyType, LogicalOperator, Program,
    Statement, Type,
};
use crate::source::Span;

const INT: IntegerType = IntegerType { bytes: 4, signed: true };

/// Changes a program as the options of the text, or of the command line, demand.
pub(crate) fn apply(program: &mut Program, macros: &MacroValues) {
    let mut options = Options::default();
    options.recording.processor = macros.options.processor;
    options.printing.by_processor = macros.options.by_processor;
    // The command line wins. Errors in a pragma are reported where all pragmas are read.
    for pragma in &program.pragmas {
        let is_given = match pragma.name.as_str() {
            "cpu" => macros.options.processor.is_none(),
            "aggpercpu" => !macros.options.by_processor,
            _ => false,
        };
        if is_given {
            let _ = options.set(&pragma.name, pragma.value.as_deref());
        }
    }
    if let Some(number) = options.recording.processor {
        on_one(program, number);
    }
    if options.printing.by_processor {
        aggregate_by_processor(program);
    }
}

fn of(kind: ExpressionKind, span: Span) -> Expression {
    Expression {
        kind,
        value_type: Type::Integer(INT),
        span,
    }
}

fn on_one(program: &mut Program, number: u32) {
    for clause in &mut program.clauses {
        let span = clause.span;
        let is_there = of(
            ExpressionKind::Binary {
                operator: BinaryOperator::Equal,
                left: Box::new(of(ExpressionKind::Builtin(Builtin::Cpu), span)),
                right: Box::new(of(ExpressionKind::Integer(i64::from(number)), span)),
            },
            span,
        );
        clause.predicate = Some(match clause.predicate.take() {
            None => is_there,
            Some(predicate) => of(
                ExpressionKind::Logical {
                    operator: LogicalOperator::And,
                    left: Box::new(is_there),
                    right: Box::new(predicate),
                },
                span,
            ),
        });
    }
}

fn aggregate_by_processor(program: &mut Program) {
    for aggregation in &mut program.aggregations {
        aggregation.keys.push(KeyType::Integer(INT));
        aggregation.by_processor = true;
    }
    for statement in program.clauses.iter_mut().flat_map(|clause| &mut clause.statements) {
        if let Statement::Aggregate { keys, span, .. } = statement {
            keys.push(KeyExpression::Value(of(ExpressionKind::Builtin(Builtin::Cpu), *span)));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{MacroValues, Source, compile};

    #[test]
    fn the_processor_is_asked_for_first() {
        let mut macros = MacroValues::default();
        macros.options.processor = Some(3);
        let text = "#pragma D option cpu=5\nBEGIN /x++/ { y = 1; } END { y = 2; }";
        let program = compile(&[Source::new("test", text)], &macros).unwrap();
        let dump = crate::dump::dump(&program);
        assert_eq!(dump.matches("(cpu == 3)").count(), 2, "{dump}");
        assert!(program.clauses.iter().all(|clause| clause.predicate.is_some()));
    }

    #[test]
    fn every_key_ends_with_the_processor() {
        let text =
            "#pragma D option aggpercpu\nBEGIN { @a = count(); @b[1, \"x\"] = sum(2); printa(\"%d %s %@d\", @b); }";
        let program = compile(&[Source::new("test", text)], &MacroValues::default()).unwrap();
        let counts: Vec<_> = program
            .aggregations
            .iter()
            .map(|found| (found.keys.len(), found.shown_keys().len()))
            .collect();
        assert_eq!(counts, [(1, 0), (3, 2)]);
    }
}
