//! Whether a format fits its arguments.

use super::{Conversion, Dimension, Directive, Format, FormatError, Size};
use crate::program::{AggregatingFunction, Aggregation, ForeignKind, IntegerType, KeyType, Type};

impl Format {
    /// Checks the number and the types of the arguments of `printf` and the actions like it.
    /// Arguments are counted from 2: the format is the first.
    ///
    /// # Errors
    /// `D_PRINTF_ARG_PROTO` (too few), `D_PRINTF_ARG_EXTRA` (too many), `D_PRINTF_ARG_TYPE`, `D_PRINTF_DYN_PROTO` and
    /// `D_PRINTF_DYN_TYPE` (a `*` without an integer), `D_PRINTF_AGG_CONV` (`%@` in a `printf`).
    pub fn check(&self, name: &'static str, arguments: &[Type]) -> Result<(), FormatError> {
        let arguments: Vec<Argument> = arguments.iter().map(Argument::of_type).collect();
        let used = self.check_conversions(name, &arguments, None)?;
        if used < arguments.len() {
            let message = format!("{name}( ) prototype mismatch: only {used} arguments required by this format string");
            return Err(FormatError::new("D_PRINTF_ARG_EXTRA", message));
        }
        Ok(())
    }

    /// Checks the aggregations of a `printa`: their keys against each other and against the
    /// conversions. As in DTrace, elements of the key without a conversion are left out, and so are
    /// aggregations without a `%@`.
    ///
    /// # Errors
    /// As [`Format::check`] and [`check_joined`].
    pub fn check_aggregations(&self, aggregations: &[&Aggregation]) -> Result<(), FormatError> {
        check_joined(aggregations)?;
        let Some(first) = aggregations.first() else {
            return Err(FormatError::new(
                "D_PRINTA_PROTO",
                "printa( ) requires an aggregation argument".to_owned(),
            ));
        };
        let keys: Vec<Argument> = first.keys.iter().map(Argument::of_key).collect();
        let value = Argument::Integer(IntegerType {
            bytes: 8,
            signed: first.function != AggregatingFunction::Count,
        });
        self.check_conversions("printa", &keys, Some(value))?;
        Ok(())
    }

    /// Assigns the arguments to the conversions; yields how many arguments they take.
    fn check_conversions(
        &self,
        function: &str,
        arguments: &[Argument],
        aggregation: Option<Argument>,
    ) -> Result<usize, FormatError> {
        let mut next = 0;
        for directive in self.directives() {
            let number = directive.number;
            let name = directive.name();
            for (dimension, text) in [(directive.width, "*"), (directive.precision, ".*")] {
                if dimension != Dimension::Argument {
                    continue;
                }
                let Some(argument) = arguments.get(next) else {
                    let message = format!(
                        "{function}( ) prototype mismatch: conversion #{number} (%{name}) is missing a corresponding \
                         \"{text}\" argument"
                    );
                    return Err(FormatError::new("D_PRINTF_DYN_PROTO", message));
                };
                next += 1;
                if !matches!(argument, Argument::Integer(_) | Argument::Enumeration(_)) {
                    let message = format!(
                        "{function}( ) argument #{} is incompatible with conversion #{number} prototype:\n\
                         \tconversion: % {text} {name}\n\t prototype: int\n\t  argument: {}",
                        next + 1,
                        argument.name()
                    );
                    return Err(FormatError::new("D_PRINTF_DYN_TYPE", message));
                }
            }
            let (argument, what) = if directive.flags.aggregation {
                let Some(value) = aggregation else {
                    let message =
                        format!("%@ conversion requires an aggregation and is not for use with {function}( )");
                    return Err(FormatError::new("D_PRINTF_AGG_CONV", message));
                };
                (value, "aggregating action".to_owned())
            } else {
                let Some(argument) = arguments.get(next) else {
                    let message = format!(
                        "{function}( ) prototype mismatch: conversion #{number} (%{name}) is missing a corresponding \
                         value argument"
                    );
                    return Err(FormatError::new("D_PRINTF_ARG_PROTO", message));
                };
                next += 1;
                (*argument, format!("argument #{}", next + 1))
            };
            if !argument.fits(directive) {
                let message = format!(
                    "{function}( ) {what} is incompatible with conversion #{number} prototype:\n\
                     \tconversion: %{name}\n\t prototype: {}\n\t  argument: {}",
                    prototype(directive),
                    argument.name()
                );
                return Err(FormatError::new("D_PRINTF_ARG_TYPE", message));
            }
        }
        Ok(next)
    }
}

/// Checks that the aggregations of one `printa`, with a format or without, have the same kinds of keys.
///
/// # Errors
/// `D_PRINTA_AGGKEY` (a different number of keys), `D_PRINTA_AGGPROTO` (keys of another kind).
pub fn check_joined(aggregations: &[&Aggregation]) -> Result<(), FormatError> {
    let [first, others @ ..] = aggregations else {
        return Ok(());
    };
    let plural = |count: usize| if count == 1 { "key" } else { "keys" };
    for other in others {
        let (left, right) = (first.keys.len(), other.keys.len());
        if left != right {
            let message = format!(
                "printa( ): {0} and {1} do not have matching key signatures: {0} has {left} {2}, {1} has {right} {3}",
                first.name,
                other.name,
                plural(left),
                plural(right)
            );
            return Err(FormatError::new("D_PRINTA_AGGKEY", message));
        }
        for (index, (left, right)) in first.keys.iter().zip(&other.keys).enumerate() {
            let (left, right) = (Argument::of_key(left), Argument::of_key(right));
            if std::mem::discriminant(&left.kind()) != std::mem::discriminant(&right.kind()) {
                let message = format!(
                    "printa( ): {1}[ ] key #{number} is incompatible with {0}:\n\
                     {0:>9} key #{number}: {2}\n{1:>9} key #{number}: {3}",
                    first.name,
                    other.name,
                    left.name(),
                    right.name(),
                    number = index + 1
                );
                return Err(FormatError::new("D_PRINTA_AGGPROTO", message));
            }
        }
    }
    Ok(())
}

/// The kinds of values that can be printed.
#[derive(Clone, Copy)]
enum Argument {
    Integer(IntegerType),
    /// An integer of an enumeration, which may give the value a name.
    Enumeration(IntegerType),
    Pointer,
    String,
    Bytes,
    Stack,
    /// Floating point, with this number of bytes.
    Float(u32),
    /// A value that cannot be printed.
    Other,
}

impl Argument {
    fn of_type(value_type: &Type) -> Argument {
        match value_type {
            Type::Integer(integer) => Argument::Integer(*integer),
            Type::String => Argument::String,
            Type::Bytes { size: Some(_) } => Argument::Bytes,
            Type::Pointer(_) | Type::Bytes { size: None } => Argument::Pointer,
            Type::Foreign(foreign) => match foreign.kind() {
                ForeignKind::Floating(bytes) => Argument::Float(*bytes),
                _ => foreign.integer().map_or(Argument::Other, Argument::Enumeration),
            },
            // A stack: no other expression without a value comes here.
            Type::Void => Argument::Stack,
            Type::Structure(_) | Type::Array { .. } => Argument::Other,
        }
    }

    fn of_key(key: &KeyType) -> Argument {
        match key {
            KeyType::Integer(integer) => Argument::Integer(*integer),
            KeyType::Enumeration(of) => of.integer().map_or(Argument::Other, Argument::Enumeration),
            KeyType::String | KeyType::Function => Argument::String,
            KeyType::Bytes { .. } => Argument::Other,
            KeyType::Stack(_) => Argument::Stack,
            KeyType::Symbol(_) => Argument::Pointer,
        }
    }

    /// The kind of value, where an enumeration counts as an integer.
    fn kind(self) -> Argument {
        match self {
            Argument::Enumeration(integer) => Argument::Integer(integer),
            other => other,
        }
    }

    fn fits(self, directive: &Directive) -> bool {
        match (self, directive.conversion) {
            (Argument::Enumeration(_), Conversion::String | Conversion::EscapedString | Conversion::Value) => true,
            _ => self.kind().is_converted(directive),
        }
    }

    fn is_converted(self, directive: &Directive) -> bool {
        match directive.conversion {
            Conversion::Address | Conversion::Pointer => matches!(self, Argument::Integer(_) | Argument::Pointer),
            Conversion::Character | Conversion::EscapedCharacter | Conversion::WideCharacter => {
                matches!(self, Argument::Integer(integer) if integer.bytes <= 4)
            }
            Conversion::Decimal
            | Conversion::Unsigned
            | Conversion::Octal
            | Conversion::Hexadecimal
            | Conversion::HexadecimalUpper => match (self, directive.size) {
                (Argument::Integer(integer), Size::Short) => integer.bytes == 2,
                (Argument::Integer(integer), Size::Long | Size::LongLong) => integer.bytes == 8,
                (Argument::Integer(_), _) => true,
                _ => false,
            },
            Conversion::Date | Conversion::MailDate => matches!(self, Argument::Integer(integer) if integer.bytes == 8),
            Conversion::String | Conversion::EscapedString => matches!(self, Argument::String | Argument::Bytes),
            Conversion::WideString => matches!(self, Argument::Bytes),
            Conversion::Value => matches!(
                self,
                Argument::Integer(_) | Argument::Pointer | Argument::String | Argument::Bytes
            ),
            Conversion::Stack => matches!(self, Argument::Stack),
            Conversion::Float => match (self, directive.size) {
                (Argument::Float(bytes), Size::LongDouble) => bytes > 8,
                (Argument::Float(_), _) => true,
                _ => false,
            },
        }
    }

    fn name(self) -> &'static str {
        match self.kind() {
            Argument::Integer(IntegerType { bytes: 1, signed: true }) => "int8_t",
            Argument::Integer(IntegerType {
                bytes: 1,
                signed: false,
            }) => "uint8_t",
            Argument::Integer(IntegerType { bytes: 2, signed: true }) => "int16_t",
            Argument::Integer(IntegerType {
                bytes: 2,
                signed: false,
            }) => "uint16_t",
            Argument::Integer(IntegerType { bytes: 4, signed: true }) => "int",
            Argument::Integer(IntegerType {
                bytes: 4,
                signed: false,
            }) => "unsigned int",
            Argument::Integer(IntegerType { signed: true, .. }) => "int64_t",
            Argument::Integer(IntegerType { signed: false, .. }) => "uint64_t",
            Argument::Pointer => "pointer",
            Argument::String => "string",
            Argument::Bytes => "char []",
            Argument::Stack => "stack",
            Argument::Float(4) => "float",
            Argument::Float(8) => "double",
            Argument::Float(_) => "long double",
            Argument::Enumeration(_) | Argument::Other => "void",
        }
    }
}

/// The types that a conversion accepts, in the words of DTrace's messages.
fn prototype(directive: &Directive) -> &'static str {
    match (directive.conversion, directive.size) {
        (Conversion::Address | Conversion::Pointer, _) => "pointer or integer",
        (Conversion::Character | Conversion::EscapedCharacter, _) => "char, short, or int",
        (Conversion::WideCharacter, _) => "int",
        (Conversion::Value, _) => "integer, enumeration, pointer, or string",
        (Conversion::Float, Size::LongDouble) => "long double",
        (Conversion::Float, _) => "float, double, or long double",
        (Conversion::Stack, _) => "stack",
        (Conversion::String | Conversion::EscapedString, _) => "char [] or string (or use stringof)",
        (Conversion::WideString, _) => "wchar_t []",
        (Conversion::Date | Conversion::MailDate, _) => "int64_t",
        (_, Size::Short) => "short",
        (_, Size::Long) => "long",
        (_, Size::LongLong) => "long long",
        _ => "char, short, int, long, or long long",
    }
}
