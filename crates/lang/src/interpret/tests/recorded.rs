//! The results of a clause: records, and the keys and values of aggregations.

use super::*;

#[test]
fn an_aggregation_gets_its_key_value_and_weight() {
    let statement = Statement::Aggregate {
        aggregation: AggregationId(0),
        keys: vec![
            KeyExpression::Value(of(Kind::Builtin(Builtin::ExecName), Type::String)),
            KeyExpression::Stack(Stack::of_program(0)),
        ],
        value: Some(of(Kind::Builtin(Builtin::Argument(3)), Type::I64)),
        weight: Some(integer(-2, Type::I32)),
        span: Span::default(),
    };
    let mut world = TestWorld::default();
    let outcome = run_clause(&clause(vec![statement]), &program(), LIMITS, &mut world).unwrap();
    assert_eq!(
        outcome,
        Outcome {
            fired: true,
            payload: None,
            exit: None
        }
    );
    let (_, key, value, weight) = &world.aggregated[0];
    assert_eq!((*value, *weight), (103, -2));
    assert_eq!(&key[..8], b"looper\0\0");
    assert_eq!(
        key::read_key(&program().aggregations[0].keys, key),
        Some(vec![Value::String(b"looper".to_vec()), Value::Stack(vec![1, 2, 3])])
    );
}

#[test]
fn a_key_that_is_too_long_is_a_fault() {
    struct Tiny(TestWorld);
    impl World for Tiny {
        fn builtin(&mut self, builtin: Builtin) -> Result<Value, Fault> {
            self.0.builtin(builtin)
        }
        fn register(&mut self, index: i64) -> Result<i64, Fault> {
            self.0.register(index)
        }
        fn get(&mut self, _: Scope, _: VariableId, _: Option<&[u8]>) -> Option<Value> {
            None
        }
        fn set(&mut self, _: Scope, _: VariableId, _: Option<&[u8]>, _: Option<Value>) {}
        fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
            self.0.read(address, bytes)
        }
        fn read_string(&mut self, address: u64, limit: usize) -> Result<Vec<u8>, Fault> {
            self.0.read_string(address, limit)
        }
        fn stack(&mut self, side: Side, frames: u32) -> Vec<u64> {
            self.0.stack(side, frames)
        }
        fn aggregate(&mut self, _: AggregationId, _: &[u8], _: i64, _: i64) {}
        fn key_bytes_max(&self) -> usize {
            8
        }
    }
    let program = program();
    let read = of(Kind::Variable(element(2, vec![string("eightest")])), Type::I64);
    let mut tiny = Tiny(TestWorld::default());
    let result = Evaluator::new(&program, LIMITS, &mut tiny).value(&read);
    assert_eq!(result, Err(Fault::new(FaultKind::KeyTooLong)));
}

#[test]
fn a_record_holds_what_the_layout_says() {
    let tested = clause(vec![
        record(RecordKind::Printf {
            format: Format::parse("%d %s").unwrap(),
            arguments: vec![integer(-2, Type::I32), string("0123456789abcdefghij")],
        }),
        record(RecordKind::Stack(Stack::of_program(2))),
        record(RecordKind::Trace(call(
            Function::CopyIn,
            vec![integer(MEMORY as i64, Type::U64), integer(5, Type::U64)],
            Type::Bytes { size: Some(5) },
        ))),
        record(RecordKind::Exit(integer(3, Type::I32))),
    ]);
    let mut world = TestWorld {
        memory: b"hello".to_vec(),
        ..TestWorld::default()
    };
    let outcome = run_clause(&tested, &program(), LIMITS, &mut world).unwrap();
    assert_eq!(outcome.exit, Some(3));
    let payload = outcome.payload.unwrap();
    let layout = record_layout(&tested, LIMITS);
    assert_eq!(payload.len() as u32, layout.bytes - RECORD_HEADER_BYTES);
    let whole = [vec![0xaa; RECORD_HEADER_BYTES as usize], payload].concat();
    let values: Vec<Value> = layout
        .fields
        .iter()
        .map(|field| read_field(&whole, field).unwrap())
        .collect();
    assert_eq!(
        values,
        [
            Value::Integer(-2),
            Value::String(b"0123456789abcde".to_vec()),
            Value::Stack(vec![1, 2]),
            Value::Bytes {
                address: 0,
                bytes: b"hello".to_vec()
            },
            Value::Integer(3),
        ]
    );
}

#[test]
fn hostile_records_and_keys_are_read_without_harm() {
    let tested = clause(vec![
        record(RecordKind::Stack(Stack::of_program(2))),
        record(RecordKind::Trace(string(""))),
        record(RecordKind::Trace(integer(0, I8))),
    ]);
    let layout = record_layout(&tested, LIMITS);
    let ones = vec![0xff; layout.bytes as usize];
    let values: Vec<Value> = layout
        .fields
        .iter()
        .map(|field| read_field(&ones, field).unwrap())
        .collect();
    assert_eq!(
        values,
        [
            Value::Stack(vec![u64::MAX, u64::MAX]),
            Value::String(vec![0xff; 16]),
            Value::Integer(-1)
        ]
    );
    assert_eq!(read_field(&ones[..40], &layout.fields[1]), None);

    let types = [KeyType::String, KeyType::Stack(Stack::of_program(0))];
    assert_eq!(key::read_key(&types, &[0xff; 64]), None); // no NUL
    assert_eq!(key::read_key(&types, &[&[0u8; 8][..], &[0xff; 16]].concat()), None); // more frames than bytes
    assert_eq!(key::read_key(&types, &[0; 8]), None);
    assert_eq!(
        key::read_key(&types, &[0; 16]),
        Some(vec![Value::String(Vec::new()), Value::Stack(Vec::new())])
    );
}
