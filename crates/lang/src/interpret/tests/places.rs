//! Variables, elements and memory: a stored value is read back.

use super::*;

#[test]
fn a_variable_cuts_a_string() {
    let mut world = TestWorld::default();
    let long = assign(global(1), string("0123456789abcdefghij"));
    assert_eq!(
        evaluate_in(&mut world, &long),
        Ok(Value::String(b"0123456789abcde".to_vec()))
    );
    let read = of(Kind::Variable(global(1)), Type::String);
    assert_eq!(
        evaluate_in(&mut world, &read),
        Ok(Value::String(b"0123456789abcde".to_vec()))
    );
}

#[test]
fn zero_deletes_an_element() {
    let mut world = TestWorld::default();
    let key = || vec![string("k")];
    evaluate_in(&mut world, &assign(element(2, key()), integer(5, Type::I64))).unwrap();
    let read = of(Kind::Variable(element(2, key())), Type::I64);
    assert_eq!(evaluate_in(&mut world, &read), Ok(Value::Integer(5)));
    evaluate_in(&mut world, &assign(element(2, key()), integer(0, Type::I64))).unwrap();
    assert!(world.variables.is_empty());
    assert_eq!(evaluate_in(&mut world, &read), Ok(Value::Integer(0)));
    // the empty string is kept, NULL deletes
    let at = || vec![integer(1, Type::I64)];
    evaluate_in(&mut world, &assign(element(3, at()), string(""))).unwrap();
    assert_eq!(world.variables.len(), 1);
    evaluate_in(
        &mut world,
        &assign(element(3, at()), cast(integer(0, Type::I64), Type::String)),
    )
    .unwrap_err();
    evaluate_in(&mut world, &assign(element(3, at()), integer(0, Type::String))).unwrap();
    assert!(world.variables.is_empty());
}

#[test]
fn compound_assignment_computes_in_the_common_type() {
    let mut world = TestWorld::default();
    let operate = |world: &mut TestWorld, operator, value: Expression| {
        let place = global(4);
        evaluate_in(
            world,
            &of(
                Kind::AssignOperator {
                    place,
                    operator,
                    value: Box::new(value),
                },
                I8,
            ),
        )
        .unwrap()
    };
    evaluate_in(&mut world, &assign(global(4), integer(-2, I8))).unwrap();
    // -2 as uint32_t is 4294967294; / 2 is 0x7fffffff, whose low byte is -1
    assert_eq!(
        operate(&mut world, Operator::Divide, integer(2, Type::U32)),
        Value::Integer(-1)
    );
    assert_eq!(
        operate(&mut world, Operator::Add, integer(128, Type::I32)),
        Value::Integer(127)
    );
    let step = |post| {
        of(
            Kind::Increment {
                place: global(4),
                delta: 1,
                post,
            },
            I8,
        )
    };
    assert_eq!(evaluate_in(&mut world, &step(true)), Ok(Value::Integer(127)));
    assert_eq!(evaluate_in(&mut world, &step(false)), Ok(Value::Integer(-127)));
}

#[test]
fn memory_of_the_target_and_scratch_memory_are_both_loadable() {
    let mut world = TestWorld {
        memory: b"\xfe\xff\xff\xffhello\0world\0".to_vec(),
        ..TestWorld::default()
    };
    let load = |address: Expression, value_type: Type| of(Kind::Load(Box::new(address)), value_type);
    let at = |offset: i64| integer(MEMORY as i64 + offset, Type::U64);
    assert_eq!(evaluate_in(&mut world, &load(at(0), Type::I32)), Ok(Value::Integer(-2)));
    assert_eq!(evaluate_in(&mut world, &load(at(0), U8)), Ok(Value::Integer(254)));
    assert_eq!(
        evaluate_in(&mut world, &load(at(999), U8)),
        Err(Fault::bad_address(MEMORY + 999))
    );

    // *(int *)copyin(a, 4), and an address after the copied bytes
    let copied = |bytes| {
        call(
            Function::CopyIn,
            vec![at(0), integer(bytes, Type::U64)],
            Type::Bytes { size: None },
        )
    };
    let pointer = |bytes| cast(copied(bytes), Type::Pointer(None));
    assert_eq!(
        evaluate_in(&mut world, &load(pointer(4), Type::I32)),
        Ok(Value::Integer(-2))
    );
    assert_eq!(
        evaluate_in(&mut world, &load(pointer(4), Type::I64)).map_err(|fault| fault.kind),
        Ok(Value::Integer(0xffff_fffe))
    );
    let beyond = binary(Operator::Add, pointer(4), integer(32, Type::U64), Type::Pointer(None));
    assert_eq!(
        evaluate_in(&mut world, &load(beyond, Type::I32)),
        Err(Fault::bad_address(SCRATCH_ADDRESS + 32))
    );
    // 64 bytes of scratch memory
    assert_eq!(
        evaluate_in(&mut world, &copied(65)),
        Err(Fault::new(FaultKind::Scratch))
    );
    assert_eq!(
        evaluate_in(&mut world, &copied(-1)),
        Err(Fault::new(FaultKind::Scratch))
    );

    let text = |arguments| call(Function::CopyInString, arguments, Type::String);
    assert_eq!(
        evaluate_in(&mut world, &text(vec![at(4)])),
        Ok(Value::String(b"hello".to_vec()))
    );
    assert_eq!(
        evaluate_in(&mut world, &text(vec![at(4), integer(3, Type::U64)])),
        Ok(Value::String(b"he".to_vec()))
    );
    assert_eq!(
        evaluate_in(&mut world, &cast(at(10), Type::String)),
        Ok(Value::String(b"world".to_vec()))
    );
    let stringof = cast(
        call(
            Function::CopyIn,
            vec![at(4), integer(7, Type::U64)],
            Type::Bytes { size: Some(7) },
        ),
        Type::String,
    );
    assert_eq!(evaluate_in(&mut world, &stringof), Ok(Value::String(b"hello".to_vec())));
}

#[test]
fn bytes_are_kept_by_their_variable() {
    let mut world = TestWorld {
        memory: b"hello".to_vec(),
        ..TestWorld::default()
    };
    let bytes = Type::Bytes { size: Some(5) };
    let copied = call(
        Function::CopyIn,
        vec![integer(MEMORY as i64, Type::U64), integer(5, Type::U64)],
        bytes.clone(),
    );
    evaluate_in(&mut world, &assign(global(5), copied)).unwrap();
    let read = of(Kind::Variable(global(5)), bytes);
    assert_eq!(evaluate_in(&mut world, &read).unwrap().as_bytes(), b"hello");
    let first = of(Kind::Load(Box::new(cast(read, Type::Pointer(None)))), U8);
    assert_eq!(evaluate_in(&mut world, &first), Ok(Value::Integer(i64::from(b'h'))));
}
