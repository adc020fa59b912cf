//! Random D programs, as texts, with every construct that has a value. Each is refused, or has the same
//! effects interpreted and compiled; `guide_runner` compares each record and each fault.
//!
//! A program reads only addresses within the memory of `guide_runner/world.rs` or far away from it,
//! because the interpreter sees nothing else of this process. No address of scratch memory becomes a
//! number, because the two sides have different ones.

/// The declarations that all programs share.
const HEAD: &str = "
struct rec { char c; int i; int low : 3; unsigned int high : 9; long l; char name[8]; };
struct out { int oa; long ol; char text[8]; int two[2]; struct rec whole; };
translator struct out < struct rec *r > { oa = r->i + 1; ol = r->l ^ r->c; text = r->name; whole = *r; };
struct out O; struct out P[int];
inline int twice[int v] = v * 2;
enum { FIRST = -1, SECOND, THIRD = 40 };
struct rec G; struct rec R[int]; int A[4]; struct rec B[4]; int Z[struct rec, int];
union mix { int a; short b[2]; unsigned char c[4]; struct { char d; unsigned short e; int m : 3; unsigned n : 4; } f; long l; };
union mix U[int]; self union mix V[string];
long x; int y; char z; unsigned short w; string s;
self int a; self string t; this long u; this string v;
long M[int, string]; string N[long]; self int K[string];
";

/// The generator Splitmix64.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

/// A program. The same seed gives the same program.
pub fn program(seed: u64) -> String {
    let mut writer = Writer {
        random: Random(seed),
        in_target: false,
        has_memory: false,
    };
    let mut text = HEAD.to_owned();
    for probe in [
        "BEGIN",
        "pid$target:a.out:work:entry",
        "pid$target:a.out:work:entry",
        "END",
    ] {
        writer.in_target = probe.starts_with("pid");
        text += &writer.clause(probe);
    }
    if writer.random.below(3) == 0 {
        writer.in_target = true;
        text += &writer.speculation();
    }
    text + "ERROR { printf(\"fault %d\\n\", arg4); }\n\
        END { printf(\"%d %d %d %d %s %d %s\\n\", x, y, z, w, s, self->a, self->t == NULL ? \"NULL\" : self->t); trace(G); trace(A[0] + A[3]); }\n"
}

struct Writer {
    random: Random,
    /// Whether the current clause has arguments and the memory of a target.
    in_target: bool,
    /// Whether `this->p` points to memory of the current clause. Memory from `alloca` is freed at the end of
    /// its clause, and of its part of an `if`.
    has_memory: bool,
}

/// The statement that allocates memory for `this->p`.
const MEMORY: &str = "this->p = (struct rec *)alloca(sizeof (struct rec));\n";

impl Writer {
    fn clause(&mut self, probe: &str) -> String {
        self.has_memory = false;
        let predicate = match self.random.below(4) {
            0 => format!("\n/{}/", self.integer(2)),
            _ => String::new(),
        };
        self.has_memory = true;
        let count = 1 + self.random.below(6);
        // A NULL ends a clause, so there must not be too many.
        let filled = match self.random.below(4) {
            0 => "",
            _ => "self->t = self->t == NULL ? \"t\" : self->t; N[1] = N[1] == NULL ? \"n\" : N[1];\n",
        };
        let body: String = (0..count).map(|_| self.statement(2)).collect();
        format!("{probe}{predicate}\n{{\n{MEMORY}{filled}{body}}}\n")
    }

    fn speculation(&mut self) -> String {
        self.has_memory = false;
        let (shown, kept, end) = (
            self.integer(2),
            self.integer(1),
            self.random.one(&["commit", "discard"]),
        );
        format!(
            "pid$target:a.out:work:entry {{ self->id = speculation(); }}\n\
             pid$target:a.out:work:entry /{kept}/ {{ speculate(self->id); printf(\"%d\\n\", {shown}); }}\n\
             pid$target:a.out:work:entry {{ {end}(self->id); self->id = 0; }}\n"
        )
    }

    fn statement(&mut self, depth: u32) -> String {
        let d = 3;
        match self.random.below(if depth == 0 { 10 } else { 12 }) {
            0 => format!(
                "{} {} {};\n",
                self.place(),
                self.random.one(ASSIGNMENTS),
                self.integer(d)
            ),
            1 => match self.random.below(6) {
                0 => {
                    let (place, index) = (
                        self.random.one(&["s", "self->t", "this->v", "N[1]"]),
                        self.random.below(20),
                    );
                    format!("{place}[{index}] = {};\n", self.integer(d))
                }
                1 => match self.random.below(4) {
                    0 => format!("R[{}] = G;\n", self.random.below(3)),
                    1 => format!("G = R[{}];\n", self.random.below(3)),
                    2 => format!("print(R[{}]);\n", self.random.below(3)),
                    _ => format!("R[0] = R[{}] = G;\n", self.random.below(3)),
                },
                _ => format!("{} = {};\n", self.place(), self.integer(d)),
            },
            2 => format!("{} = {};\n", self.string_place(), self.string(d)),
            3 => format!("{}{};\n", self.place(), self.random.one(&["++", "--"])),
            4 => format!("trace({});\n", self.integer(d)),
            5 => format!("trace({});\n", self.string(d)),
            6 => format!(
                "printf(\"%d [%s] %x\\n\", {}, {}, {});\n",
                self.integer(d),
                self.string(d),
                self.integer(d)
            ),
            7 => self.aggregation(),
            8 => match self.random.below(5) {
                0 => format!("tracemem(this->p, 8, {});\n", self.integer(1)),
                1 => "print(*this->p);\n".to_owned(),
                2 => "G = *this->p;\n".to_owned(),
                3 if self.in_target => format!("bcopy((void *)(arg0 + {}), this->p, 16);\n", self.random.below(200)),
                3 => "trace(G.name);\n".to_owned(),
                _ => format!("this->p->l = {};\n", self.integer(d)),
            },
            9 if self.has_memory => {
                let place = match self.random.below(3) {
                    0 => format!("P[{}]", self.integer(1)),
                    _ => "O".to_owned(),
                };
                format!("{place} = xlate <struct out>(this->p); print({place});\n")
            }
            9 => format!("print({});\n", self.integer(d)),
            10 => {
                let (condition, then) = (self.integer(2), self.statement(depth - 1));
                let otherwise = match self.random.below(2) {
                    0 => String::new(),
                    _ => format!(" else {{ {MEMORY}{} }}", self.statement(depth - 1)),
                };
                format!("if ({condition}) {{ {MEMORY}{then} }}{otherwise}\n{MEMORY}")
            }
            _ => format!("{}, {};\n", self.integer(2), self.integer(2)),
        }
    }

    fn aggregation(&mut self) -> String {
        let value = self.integer(2);
        let (name, function) = match self.random.below(8) {
            0 => ("@c", "count()".to_owned()),
            1 => ("@s", format!("sum({value})")),
            2 => ("@n", format!("min({value})")),
            3 => ("@m", format!("avg({value})")),
            4 => ("@d", format!("stddev({value})")),
            5 => ("@q", format!("quantize({value}, {})", self.integer(1))),
            6 => ("@l", format!("lquantize({value}, -10, 100, 7)")),
            _ => ("@o", format!("llquantize({value}, 10, 0, 6, 20)")),
        };
        match self.random.below(4) {
            0 => format!("{name}0 = {function};\n"),
            1 => format!("{name}2[{}, {}] = {function};\n", self.integer(1), self.structure()),
            _ => format!("{name}1[{}, {}] = {function};\n", self.integer(2), self.string(2)),
        }
    }

    fn place(&mut self) -> String {
        match self.random.below(19) {
            16 => format!("Z[{}, {}]", self.structure(), self.integer(1)),
            17 => format!("B[({}) & 3].{}", self.integer(1), self.random.one(&["low", "high"])),
            18 => format!(
                "B[{} & 3].{}",
                self.random.one(&["y++", "--z"]),
                self.random.one(&["low", "high", "l"])
            ),
            0 => format!("M[{}, {}]", self.integer(1), self.string(1)),
            1 => format!("self->K[{}]", self.string(1)),
            2 => format!("A[{}]", self.index()),
            3 => "G.i".to_owned(),
            4 => "G.l".to_owned(),
            5 if self.has_memory => "this->p->i".to_owned(),
            6 => "G.low".to_owned(),
            7 => "G.high".to_owned(),
            8 => "self->a".to_owned(),
            9 => "this->u".to_owned(),
            10 => format!(
                "R[{}].{}",
                self.random.below(3),
                self.random.one(&["c", "i", "low", "high", "l", "name[2]"])
            ),
            13 => format!("U[{}].{}", self.integer(1), self.part_of_union()),
            14 => format!("self->V[{}].{}", self.string(1), self.part_of_union()),
            11 => format!("(&A[1])[({}) & 1]", self.integer(1)),
            12 => format!("*(&A[0] + {})", self.index()),
            _ => self.random.one(&["x", "y", "z", "w"]).to_owned(),
        }
    }

    fn structure(&mut self) -> String {
        match self.random.below(6) {
            0 => format!("R[{}]", self.integer(1)),
            1 => format!("B[{}]", self.index()),
            2 if self.has_memory => "*this->p".to_owned(),
            3 if self.in_target => format!("(*(struct rec *)(arg0 + {}))", self.random.below(200)),
            _ => "G".to_owned(),
        }
    }

    fn part_of_union(&mut self) -> String {
        match self.random.below(4) {
            0 => format!("b[{} & 1]", self.integer(1)),
            1 => format!("c[{} & 3]", self.integer(1)),
            _ => self
                .random
                .one(&["a", "l", "f.d", "f.e", "f.m", "f.n", "b[1]"])
                .to_owned(),
        }
    }

    fn string_place(&mut self) -> String {
        match self.random.below(5) {
            0 => format!("N[{}]", self.integer(1)),
            _ => self.random.one(&["s", "self->t", "this->v"]).to_owned(),
        }
    }

    /// The index of an array of four; one in eight lies outside.
    fn index(&mut self) -> String {
        let mask = if self.random.below(8) == 0 { 7 } else { 3 };
        format!("{} & {mask}", self.integer(1))
    }

    fn integer(&mut self, depth: u32) -> String {
        if depth == 0 {
            return match self.random.below(6) {
                0 => self.place_without_keys(),
                1 if self.in_target => format!("arg{}", 1 + self.random.below(5)),
                2 => self
                    .random
                    .one(&["FIRST", "SECOND", "THIRD", "sizeof (struct rec)", "'a'"])
                    .to_owned(),
                _ => self.random.one(NUMBERS).to_owned(),
            };
        }
        let d = depth - 1;
        match self.random.below(27) {
            0..=5 => format!(
                "({} {} {})",
                self.integer(d),
                self.random.one(OPERATORS),
                self.integer(d)
            ),
            6 => format!("{}({})", self.random.one(&["-", "~", "!", "+"]), self.integer(d)),
            7 => format!("({} ? {} : {})", self.integer(d), self.integer(d), self.integer(d)),
            8 => format!("({}){}", self.random.one(TYPES), self.atom(d)),
            9 => format!("strlen({})", self.string(d)),
            10 => format!(
                "({} {} {})",
                self.string(d),
                self.random.one(COMPARISONS),
                self.string(d)
            ),
            11 => format!(
                "{}({}, {})",
                self.random.one(&["index", "rindex"]),
                self.string(d),
                self.string(d)
            ),
            12 => format!(
                "strtoll({}{})",
                self.string(d),
                self.random.one(&["", ", 16", ", 2", ", 36", ", 37"])
            ),
            13 => format!("{}({})", self.random.one(SWAPS), self.integer(d)),
            14 => format!("twice[{}]", self.integer(d)),
            15 => format!("({}, {})", self.integer(d), self.integer(d)),
            16 if self.has_memory => format!("xlate <struct out *>(this->p)->{}", self.random.one(&["oa", "ol"])),
            17 => self.place(),
            18 if self.in_target => format!("*(int *)copyin(arg0 + {}, 4)", self.random.below(250)),
            19 if self.in_target => format!("((int *)(arg0 + 64))[{} & 15]", self.integer(d)),
            20 if self.in_target => format!("*(long *)(arg0 + ({} & 127))", self.integer(d)),
            21 => format!("progenyof({})", self.random.one(&["100", "99", "5"])),
            22 => format!("({})[{}]", self.string(d), self.integer(d)),
            23 => format!("*({})", self.string(d)),
            24 => {
                let index = self.integer(d);
                match self.random.below(4) {
                    0 => format!("(&A[1])[({index}) & 1]"),
                    1 => format!("*(A + (({index}) & 3))"),
                    2 => format!("(&A[({index}) & 3] - A)"),
                    _ => format!("(&G.i)[({index}) & 1]"),
                }
            }
            25 => format!(
                "R[{}].{}",
                self.random.below(3),
                self.random.one(&["c", "i", "low", "high", "l", "name[2]"])
            ),
            _ => format!(
                "({} = {})",
                self.random.one(&["x", "y", "z", "w", "G.i"]),
                self.integer(d)
            ),
        }
    }

    fn atom(&mut self, depth: u32) -> String {
        format!("({})", self.integer(depth))
    }

    fn place_without_keys(&mut self) -> String {
        let places = ["x", "y", "z", "w", "self->a", "G.i", "G.c", "G.low", "G.high", "A[2]"];
        self.random.one(&places).to_owned()
    }

    fn string(&mut self, depth: u32) -> String {
        if depth == 0 {
            return match self.random.below(3) {
                0 => self
                    .random
                    .one(&["s", "self->t", "probename", "execname", "probefunc"])
                    .to_owned(),
                _ => self.random.one(STRINGS).to_owned(),
            };
        }
        let d = depth - 1;
        match self.random.below(22) {
            20 => format!("stringof(R[{}].name)", self.integer(d)),
            21 => format!("stringof({}.name)", self.structure()).replace("*this->p.", "this->p->"),
            0 | 1 => format!("strjoin({}, {})", self.string(d), self.string(d)),
            2 => format!("substr({}, {})", self.string(d), self.integer(d)),
            3 => format!("substr({}, {}, {})", self.string(d), self.integer(d), self.integer(d)),
            4 => format!("strtok({}, {})", self.string(d), self.string(d)),
            5 => format!("strtok(NULL, {})", self.string(d)),
            6 => format!(
                "{}({}, {})",
                self.random.one(&["strchr", "strrchr"]),
                self.string(d),
                self.integer(d)
            ),
            7 => format!("strstr({}, {})", self.string(d), self.string(d)),
            8 => format!(
                "{}({})",
                self.random.one(&["basename", "dirname", "cleanpath"]),
                self.string(d)
            ),
            9 => format!("{}({})", self.random.one(&["toupper", "tolower"]), self.string(d)),
            10 => format!(
                "lltostr({}{})",
                self.integer(d),
                self.random.one(&["", ", 16", ", 8", ", 2", ", 1"])
            ),
            11 => format!("json({}, {})", self.random.one(DOCUMENTS), self.random.one(PATHS)),
            12 => format!("json({}, {})", self.string(d), self.string(d)),
            13 => format!("({} ? {} : {})", self.integer(d), self.string(d), self.string(d)),
            14 => format!("N[{}]", self.integer(d)),
            15 if self.in_target => format!("copyinstr(arg0 + {})", self.random.below(180)),
            16 if self.in_target => format!("copyinstr(arg0 + {}, {} & 31)", self.random.below(180), self.integer(d)),
            17 if self.in_target => self.random.one(ADDRESSES).to_owned(),
            19 => format!("({} + {})", self.string(d), self.integer(d)),
            18 if self.in_target => format!("stringof((char *)(arg0 + {}))", self.random.below(180)),
            _ => self.string(d),
        }
    }
}

const ASSIGNMENTS: &[&str] = &["+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="];
const OPERATORS: &[&str] = &[
    "+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "^^",
];
const COMPARISONS: &[&str] = &["==", "!=", "<", "<=", ">", ">="];
const SWAPS: &[&str] = &["htons", "htonl", "htonll", "ntohs", "ntohl", "ntohll"];
const TYPES: &[&str] = &[
    "char",
    "unsigned char",
    "short",
    "uint16_t",
    "int",
    "unsigned int",
    "long",
    "uint64_t",
];
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "63",
    "64",
    "127",
    "128",
    "255",
    "256",
    "0x7fff",
    "0x8000",
    "0x7fffffff",
    "0x80000000",
    "0xffffffffu",
    "0x7fffffffffffffff",
    "0x8000000000000000",
    "-100",
];
const STRINGS: &[&str] = &[
    "\"\"",
    "\"a\"",
    "\"hello, world\"",
    "\"/usr//local/../lib/./x/\"",
    "\"-0x7f\"",
    "\"0777z\"",
    "\"  12\"",
    "\",;, \"",
    "\"\\\\\\\"\\t\"",
    "\"a.b[1]\"",
    "\"l\"",
    "\"9223372036854775808\"",
    "\"The quick brown fox jumps over it all again and again\"",
];
const DOCUMENTS: &[&str] = &[
    "\"{\\\"a\\\": {\\\"b\\\": [1, \\\"two\\\", {\\\"c\\\": null}]}, \\\"d\\\": -1.5e3}\"",
    "\"[[], [true, false], \\\"\\\\u0041\\\\n\\\"]\"",
    "\"{\\\"a\\\": \"",
    "\"{\\\"a\\\":1,\\\"a\\\":2} x\"",
];
const PATHS: &[&str] = &[
    "\"a\"",
    "\"a.b[1]\"",
    "\"a.b[2].c\"",
    "\"d\"",
    "\"[1][0]\"",
    "\"[2]\"",
    "\"a.b[\"",
    "\"\"",
    "\"..\"",
];
const ADDRESSES: &[&str] = &[
    "inet_ntoa((ipaddr_t *)(arg0 + 40))",
    "inet_ntop(2, (void *)(arg0 + 40))",
    "inet_ntop(10, (void *)(arg0 + 48))",
    "inet_ntop(3, (void *)(arg0 + 40))",
];
