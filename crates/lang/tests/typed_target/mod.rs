//! A traced program for scripts with a line `/* typed target */`. It has the types that
//! `tests/programs/typed.c` has in DWARF.

use nanoprobe_lang::program::{
    Bits, Body, Foreign, ForeignKind, IntegerType, Member, ProbeDescription, Structure, Type,
};
use nanoprobe_lang::target::{Argument, ArgumentPlace, Target, Unknown, Variable};

const fn integer(bytes: u8, signed: bool) -> Type {
    Type::Integer(IntegerType { bytes, signed })
}

fn pointer(to: Type) -> Type {
    Type::Pointer(Some(Box::new(to)))
}

fn array(of: Type, count: u32) -> Type {
    Type::Array {
        of: Box::new(of),
        count,
    }
}

fn member(name: &str, member_type: Type, offset: u64) -> Member {
    Member {
        name: name.to_owned(),
        member_type,
        offset,
        bits: None,
        shown: None,
    }
}

fn structure(name: &str, bytes: u64, members: impl Fn() -> Vec<Member> + Send + Sync + 'static) -> Structure {
    let source = move || {
        Some(Body {
            members: members(),
            bytes,
            alignment: 8,
        })
    };
    Structure::foreign(name.to_owned(), Box::new(source))
}

/// The program.
pub struct Typed {
    request: Structure,
    point: Structure,
    pair: Structure,
    large: Structure,
    color: Type,
}

impl Default for Typed {
    fn default() -> Typed {
        let color = Type::Foreign(Foreign::new(
            "enum color".to_owned(),
            ForeignKind::Enumeration {
                integer: IntegerType { bytes: 4, signed: true },
                names: vec![("RED".to_owned(), 3), ("GREEN".to_owned(), -2)],
            },
        ));
        let ratio = Type::Foreign(Foreign::new("double".to_owned(), ForeignKind::Floating(8)));
        let address = structure("struct address", 6, || {
            vec![
                member("octets", array(integer(1, false), 4), 0),
                member("port", integer(2, false), 4),
            ]
        });
        let nameless = structure("struct", 8, || {
            vec![
                member("first", integer(4, true), 0),
                member("second", integer(4, true), 4),
            ]
        });
        // A list: the structure points to itself through its declaration.
        let next = structure("struct request", 64, {
            let nameless = nameless.clone();
            move || vec![member("", Type::Structure(nameless.clone()), 40)]
        });
        let request = structure("struct request", 64, {
            let color = color.clone();
            move || {
                let level = Member {
                    bits: Some(Bits { shift: 3, width: 7 }),
                    ..member("level", integer(4, true), 20)
                };
                vec![
                    member("next", pointer(Type::Structure(next.clone())), 0),
                    member("path", pointer(integer(1, true)), 8),
                    member("color", color.clone(), 16),
                    level,
                    member("server", Type::Structure(address.clone()), 32),
                    member("", Type::Structure(nameless.clone()), 40),
                    member("ratio", ratio.clone(), 48),
                ]
            }
        });
        let point = structure("point_t", 8, || {
            vec![member("x", integer(4, true), 0), member("y", integer(2, true), 4)]
        });
        let pair = structure("struct pair", 16, || {
            vec![
                member("a", integer(4, true), 0),
                member("b", integer(4, true), 4),
                member("c", integer(8, true), 8),
            ]
        });
        let large = structure("struct large", 48, || {
            vec![
                member("words", array(Type::I64, 5), 0),
                member("last", integer(1, true), 40),
            ]
        });
        Typed {
            request,
            point,
            pair,
            large,
            color,
        }
    }
}

fn argument(name: &str, value_type: Type, place: ArgumentPlace) -> Argument {
    Argument {
        name: name.to_owned(),
        value_type,
        place,
    }
}

fn unknown<T>(tag: &'static str, what: &str) -> Result<T, Unknown> {
    Err(Unknown::new(tag, format!("failed to resolve {what}")).with_help("compile it with -g"))
}

impl Target for Typed {
    fn tagged(&self, keyword: &str, tag: &str) -> Result<Type, Unknown> {
        match (keyword, tag.rsplit('`').next()) {
            ("struct", Some("request")) => Ok(Type::Structure(self.request.clone())),
            ("enum", Some("color")) => Ok(self.color.clone()),
            _ => unknown("D_TYPE_ERR", &format!("{keyword} {tag}")),
        }
    }

    fn named(&self, name: &str) -> Result<Type, Unknown> {
        match name {
            "point_t" => Ok(Type::Structure(self.point.clone())),
            _ => unknown("D_TYPE_ERR", name),
        }
    }

    fn enumerator(&self, name: &str) -> Option<i64> {
        match name {
            "RED" => Some(3),
            "BLUE" => Some(700),
            _ => None,
        }
    }

    fn arguments(&self, probes: &[ProbeDescription]) -> Result<Vec<Argument>, Unknown> {
        use ArgumentPlace::{Behind, Stack, Unreadable, Words};
        let [probe] = probes else {
            return unknown("D_ARGS_MULTI", "several probes");
        };
        let request = pointer(Type::Structure(self.request.clone()));
        let offset = argument("", Type::U64, Words(0));
        let large = Type::Structure(self.large.clone());
        Ok(match (probe.function.as_str(), probe.name.as_str()) {
            ("serve", "entry") => vec![
                argument("request", request, Words(0)),
                argument("name", pointer(integer(1, true)), Words(1)),
                argument("count", integer(2, true), Words(2)),
                argument("flag", integer(1, false), Words(3)),
            ],
            ("serve", "return") => vec![offset, argument("", Type::I64, Words(1))],
            ("paint", "entry") => vec![
                argument("color", self.color.clone(), Words(0)),
                argument("weight", Type::I64, Unreadable("it is passed in %xmm0".to_owned())),
            ],
            ("both", "entry") => vec![
                argument("pair", Type::Structure(self.pair.clone()), Words(0)),
                argument("letter", integer(1, true), Words(2)),
            ],
            ("many", "entry") => vec![
                argument("one", Type::I32, Words(1)),
                argument("large", large, Stack(0)),
                argument("tail", integer(2, true), Stack(48)),
            ],
            ("many", "return") => vec![offset, argument("", large, Behind(1))],
            _ => return unknown("D_ARGS_TYPE", "args[ ]"),
        })
    }

    fn variable(&self, name: &str) -> Result<Variable, Unknown> {
        let (address, value_type) = match name.rsplit('`').next() {
            Some("counter") => (0x4010, Some(Type::I64)),
            Some("head") => (0x4018, Some(pointer(Type::Structure(self.request.clone())))),
            Some("shade") => (0x4020, Some(self.color.clone())),
            Some("table") => (0x4040, Some(Type::Structure(self.large.clone()))),
            Some("lines") => (0x4080, Some(array(integer(2, false), 4))),
            Some("label") => (0x4100, None),
            Some("own") => return Err(Unknown::new("D_SYM_BADREF", format!("{name} is thread-local"))),
            _ => return unknown("D_IDENT_UNDEF", name),
        };
        Ok(Variable { address, value_type })
    }
}
