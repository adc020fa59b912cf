use super::*;
use crate::program::{AggregatingFunction, Aggregation, IntegerType, KeyType, Stack, Type};

const I16: Type = Type::Integer(IntegerType { bytes: 2, signed: true });

fn directives(text: &str) -> Vec<Directive> {
    Format::parse(text).unwrap().directives().copied().collect()
}

fn only(text: &str) -> Directive {
    let found = directives(text);
    assert_eq!(found.len(), 1, "{text}");
    found[0]
}

#[test]
fn text_and_conversions_alternate() {
    let format = Format::parse("a%%b %d%s%%").unwrap();
    let shapes: Vec<String> = format
        .pieces
        .iter()
        .map(|piece| match piece {
            Piece::Literal(text) => format!("{text:?}"),
            Piece::Directive(directive) => format!("#{} {}", directive.number, directive.name()),
        })
        .collect();
    // %% counts: messages number the conversions as DTrace does
    assert_eq!(shapes, ["\"a%b \"", "#2 d", "#3 s", "\"%\""]);
}

#[test]
fn modifiers_are_taken_in_any_order() {
    let directive = only("%-+# '12.5lld");
    assert_eq!(directive.width, Dimension::Fixed(12));
    assert_eq!(directive.precision, Dimension::Fixed(5));
    assert_eq!(
        (directive.size, directive.letter, directive.conversion),
        (Size::LongLong, 'd', Conversion::Decimal)
    );
    let flags = directive.flags;
    assert!(flags.left && flags.plus && flags.alternate && flags.space && flags.group && !flags.zero);

    assert!(only("%-08x").flags.zero && !only("%-08x").flags.left);
    assert!(only("%0-8x").flags.left && !only("%0-8x").flags.zero);
    assert_eq!(only("%*.*s").width, Dimension::Argument);
    assert_eq!(only("%*.*s").precision, Dimension::Argument);
    assert_eq!(only("%?p").width, Dimension::Fixed(16));
    assert_eq!(only("%10@d").width, Dimension::Fixed(10));
    assert!(only("%@10d").flags.aggregation);
    assert_eq!(only("%.08d").precision, Dimension::Fixed(8));
}

#[test]
fn every_conversion_of_the_manual_is_known() {
    for text in [
        "%a %A %c %C %d %i %o %u %x %X %e %E %f %g %G %k %p %s %S %T %Y %wc %ws %lc %ls",
        "%hd %hi %ho %hu %hx %hX %ld %li %lo %lu %lx %lX %lld %lli %llo %llu %llx %llX %Le %LE %Lf %Lg %LG",
    ] {
        assert_eq!(directives(text).len(), text.split(' ').count());
    }
}

#[test]
fn malformed_formats_are_refused() {
    for (text, tag, message) in [
        ("", "D_PRINTF_FMT_EMPTY", "format string is empty"),
        (
            "%",
            "D_SYNTAX",
            "format conversion #1 name expected before end of format string",
        ),
        (
            "%d %-10",
            "D_SYNTAX",
            "format conversion #2 name expected before end of format string",
        ),
        ("%q", "D_SYNTAX", "format conversion #1 is undefined: %q"),
        ("%hhd", "D_SYNTAX", "format conversion #1 is undefined: %hhd"),
        ("%Ls", "D_SYNTAX", "format conversion #1 is undefined: %Ls"),
        ("%é", "D_SYNTAX", "format conversion #1 is undefined: %é"),
        (
            "%1$d",
            "D_SYNTAX",
            "format conversion #1 uses unsupported positional format (%n$)",
        ),
        (
            "%-%",
            "D_SYNTAX",
            "format conversion #1 cannot be combined with other format flags: %%",
        ),
        (
            "%..d",
            "D_SYNTAX",
            "format conversion #1 has more than one '.' specified",
        ),
        (
            "%**d",
            "D_SYNTAX",
            "format conversion #1 has more than one '*' specified for the output width",
        ),
        (
            "%.**d",
            "D_SYNTAX",
            "format conversion #1 has more than one '*' specified for the output precision",
        ),
        (
            "%99999999d",
            "D_SYNTAX",
            "format conversion #1 has a width or precision beyond 16777215: 99999999",
        ),
        (
            "%99999999999999999999999d",
            "D_SYNTAX",
            "format conversion #1 has a width or precision beyond 16777215: 99999999999999999999999",
        ),
    ] {
        let error = Format::parse(text).unwrap_err();
        assert_eq!((error.tag, error.message.as_str()), (tag, message), "{text:?}");
    }
}

#[test]
fn arguments_must_fit() {
    let check = |text: &str, arguments: &[Type]| {
        Format::parse(text)
            .unwrap()
            .check("printf", arguments)
            .map_err(|error| error.tag)
            .err()
            .unwrap_or("")
    };
    let bytes = Type::Bytes { size: Some(16) };
    let pointer = Type::Pointer(None);
    for (text, arguments, tag) in [
        ("plain", vec![], ""),
        ("plain", vec![Type::I64], "D_PRINTF_ARG_EXTRA"),
        ("%d", vec![], "D_PRINTF_ARG_PROTO"),
        ("%d %d", vec![Type::I64], "D_PRINTF_ARG_PROTO"),
        (
            "%d %i %u %x %X %o",
            vec![Type::I64, Type::I32, I16, Type::U64, Type::U32, Type::I32],
            "",
        ),
        ("%d", vec![Type::String], "D_PRINTF_ARG_TYPE"),
        ("%x", vec![pointer.clone()], "D_PRINTF_ARG_TYPE"),
        ("%p %p %a", vec![pointer.clone(), Type::I64, Type::U64], ""),
        ("%s", vec![Type::I64], "D_PRINTF_ARG_TYPE"),
        ("%s", vec![pointer], "D_PRINTF_ARG_TYPE"),
        ("%s %S", vec![Type::String, bytes.clone()], ""),
        ("%ws", vec![bytes], ""),
        ("%ws", vec![Type::String], "D_PRINTF_ARG_TYPE"),
        ("%c %C", vec![Type::I32, I16], ""),
        ("%c", vec![Type::I64], "D_PRINTF_ARG_TYPE"),
        ("%ld %lld %llx", vec![Type::I64, Type::U64, Type::I64], ""),
        ("%ld", vec![Type::I32], "D_PRINTF_ARG_TYPE"),
        ("%hd", vec![I16], ""),
        ("%hd", vec![Type::I32], "D_PRINTF_ARG_TYPE"),
        ("%Y", vec![Type::U64], ""),
        ("%Y", vec![Type::I32], "D_PRINTF_ARG_TYPE"),
        ("%f", vec![Type::I64], "D_PRINTF_ARG_TYPE"),
        ("%k", vec![Type::I64], "D_PRINTF_ARG_TYPE"),
        ("%*d", vec![Type::I32, Type::I64], ""),
        ("%*.*s", vec![Type::I32, Type::I32, Type::String], ""),
        ("%*d", vec![Type::String, Type::I64], "D_PRINTF_DYN_TYPE"),
        ("%*d", vec![], "D_PRINTF_DYN_PROTO"),
        ("%*d", vec![Type::I32], "D_PRINTF_ARG_PROTO"),
        ("%@d", vec![Type::I64], "D_PRINTF_AGG_CONV"),
        ("%d", vec![Type::Void], "D_PRINTF_ARG_TYPE"),
        ("%s", vec![Type::Bytes { size: None }], "D_PRINTF_ARG_TYPE"),
    ] {
        assert_eq!(check(text, &arguments), tag, "{text:?} {arguments:?}");
    }
}

#[test]
fn messages_say_which_argument_and_what_was_expected() {
    let message = |text: &str, arguments: &[Type]| {
        Format::parse(text)
            .unwrap()
            .check("printf", arguments)
            .unwrap_err()
            .message
    };
    assert_eq!(
        message("%d then %5s", &[Type::I64, Type::I32]),
        "printf( ) argument #3 is incompatible with conversion #2 prototype:\n\
         \tconversion: %s\n\t prototype: char [] or string (or use stringof)\n\t  argument: int"
    );
    assert_eq!(
        message("%.*s", &[Type::String, Type::String]),
        "printf( ) argument #2 is incompatible with conversion #1 prototype:\n\
         \tconversion: % .* s\n\t prototype: int\n\t  argument: string"
    );
    assert_eq!(
        message("a %lld", &[]),
        "printf( ) prototype mismatch: conversion #1 (%lld) is missing a corresponding value argument"
    );
}

#[test]
fn a_value_of_any_type_has_a_conversion() {
    let check = |value_type: Type| {
        let format = Format::parse("%-8v").unwrap();
        format.check("printf", &[value_type]).map_err(|error| error.tag)
    };
    for value_type in [Type::I32, Type::U64, Type::String, Type::Pointer(None)] {
        assert_eq!(check(value_type.clone()), Ok(()), "{value_type:?}");
    }
    assert_eq!(check(Type::Void), Err("D_PRINTF_ARG_TYPE"));
    assert_eq!(Format::parse("%lv").map_err(|error| error.tag), Err("D_SYNTAX"));
}

#[test]
fn printa_takes_keys_and_values() {
    let aggregation = |name: &str, keys: &[KeyType]| Aggregation {
        name: name.to_owned(),
        function: AggregatingFunction::Count,
        keys: keys.to_vec(),
        by_processor: false,
    };
    let integer = KeyType::Integer(IntegerType { bytes: 4, signed: true });
    let stack = KeyType::Stack(Stack::of_program(0));
    let by_name = aggregation("@n", &[KeyType::String, integer.clone()]);
    let also_by_name = aggregation(
        "@m",
        &[
            KeyType::String,
            KeyType::Integer(IntegerType {
                bytes: 8,
                signed: false,
            }),
        ],
    );
    let by_stack = aggregation("@s", &[stack]);
    let check = |text: &str, aggregations: &[&Aggregation]| {
        let result = Format::parse(text).unwrap().check_aggregations(aggregations);
        result.map_err(|error| error.tag).err().unwrap_or("")
    };
    assert_eq!(check("%s %d %@d\n", &[&by_name]), "");
    assert_eq!(check("%@d\n", &[&by_name]), ""); // keys may be left out
    assert_eq!(check("%s %d %@d %@x\n", &[&by_name, &also_by_name]), "");
    assert_eq!(check("%s %d %d %@d\n", &[&by_name]), "D_PRINTF_ARG_PROTO");
    assert_eq!(check("%d %@d\n", &[&by_name]), "D_PRINTF_ARG_TYPE");
    assert_eq!(check("%@s\n", &[&by_name]), "D_PRINTF_ARG_TYPE");
    assert_eq!(check("%k %@d\n", &[&by_stack]), "");
    assert_eq!(check("%@d\n", &[]), "D_PRINTA_PROTO");
    assert_eq!(check("%@d\n", &[&by_name, &by_stack]), "D_PRINTA_AGGKEY");
    let swapped = aggregation("@w", &[integer, KeyType::String]);
    assert_eq!(
        check_joined(&[&by_name, &swapped]).unwrap_err().message,
        "printa( ): @w[ ] key #1 is incompatible with @n:\n       @n key #1: string\n       @w key #1: int"
    );
}

proptest::proptest! {
    #[test]
    fn any_text_parses_or_is_refused(text in "[%a-zA-Z0-9*.@#?' é-]{0,24}") {
        if let Ok(format) = Format::parse(&text) {
            let literal: usize = format.pieces.iter().map(|piece| match piece {
                Piece::Literal(literal) => literal.len(),
                Piece::Directive(_) => 0,
            }).sum();
            proptest::prop_assert!(literal <= text.len());
        }
    }
}
