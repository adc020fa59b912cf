//! The readable names of functions: the value of `probefunc` in the form of the source.
//!
//! D programs compute with the linker's names, which distinguish overloaded functions. Only the printed text changes,
//! and only if the printed value is `probefunc` itself.

use nanoprobe_lang::interpret::Value;
use nanoprobe_lang::program::{Expression, RecordKind};

use crate::sink::Recorded;
use crate::stack::Symbolizer;

/// A value of `probefunc`, in the form of the source.
pub(crate) fn function_name(value: &Value, symbolizer: &mut dyn Symbolizer) -> Value {
    let Value::String(bytes) = value else {
        return value.clone();
    };
    let name = std::str::from_utf8(bytes).ok();
    let shown = name.and_then(|name| symbolizer.function_name(name));
    Value::String(shown.map_or_else(|| bytes.clone(), String::into_bytes))
}

/// The values that an action has recorded, with the names of functions in the form of the source; `None`: there are
/// no such names.
pub(crate) fn with_function_names<'r>(
    kind: &RecordKind,
    recorded: &[&Recorded<'r>],
    symbolizer: &mut dyn Symbolizer,
) -> Option<Vec<Recorded<'r>>> {
    let arguments = match kind {
        RecordKind::Trace(value) => std::slice::from_ref(value),
        RecordKind::Printf { arguments, .. } => arguments,
        _ => &[],
    };
    if !arguments.iter().any(Expression::is_function_name) {
        return None;
    }
    let is_name = |number: usize| arguments.get(number).is_some_and(Expression::is_function_name);
    let shown = recorded.iter().map(|(field, value)| {
        let value = match is_name(field.argument) {
            true => function_name(value, symbolizer),
            false => value.clone(),
        };
        (*field, value)
    });
    Some(shown.collect())
}
