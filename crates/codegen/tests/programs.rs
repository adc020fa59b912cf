//! Random D programs, from a grammar, as text. A program that the front end accepts must have the same effects
//! interpreted and compiled. Nothing may panic, whatever the text is. `guide_runner` compares every record and every
//! fault.
#![allow(clippy::unwrap_used)] // tests

#[path = "guide_runner/mod.rs"]
mod guide_runner;
mod support;

use proptest::prelude::*;

/// Operands are chosen by numbers that proptest makes and shrinks. When they run out, the simplest operand is chosen.
struct Writer {
    choices: std::vec::IntoIter<u32>,
}

const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "2",
    "7",
    "31",
    "33",
    "64",
    "255",
    "0x7fffffff",
    "0x80000000",
    "0xffffffffu",
    "-1",
    "1 << 40",
    "0x7fffffffffffffff",
];
const STRINGS: [&str; 8] = [
    "\"\"",
    "\"a\"",
    "\"abc\"",
    "\"/usr//bin/../lib/\"",
    "\" -0x1F zz\"",
    "\"a,b;;c,\"",
    "\"ABC xyz\"",
    "\"0123456789012345678901234567890\"",
];
const INTEGERS: [&str; 11] = [
    "i",
    "u",
    "c",
    "us",
    "l",
    "this->i",
    "self->l",
    "map[1, \"x\"]",
    "p.x",
    "p.small",
    "arr[3]",
];
const ARITHMETIC: [&str; 10] = ["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"];
const COMPARISONS: [&str; 6] = ["==", "!=", "<", "<=", ">", ">="];
const TYPES: [&str; 8] = [
    "char",
    "unsigned char",
    "short",
    "uint16_t",
    "int",
    "unsigned int",
    "long",
    "uint64_t",
];

impl Writer {
    fn choose(&mut self, below: usize) -> usize {
        self.choices.next().unwrap_or(0) as usize % below
    }

    fn of<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts[self.choose(texts.len())]
    }

    fn integer(&mut self, depth: u32) -> String {
        let kinds = if depth == 0 { 3 } else { 18 };
        let next = depth.saturating_sub(1);
        match self.choose(kinds) {
            0 => format!("({})", self.of(&NUMBERS)),
            1 => self.of(&INTEGERS).to_owned(),
            2 => format!("arg{}", 1 + self.choose(5)),
            3..=5 => format!(
                "({} {} {})",
                self.integer(next),
                self.of(&ARITHMETIC),
                self.integer(next)
            ),
            6 => format!(
                "({} {} {})",
                self.integer(next),
                self.of(&COMPARISONS),
                self.integer(next)
            ),
            7 => format!(
                "({} {} {})",
                self.string(next),
                self.of(&COMPARISONS),
                self.string(next)
            ),
            8 => format!("({}{})", self.of(&["-", "~", "!", "+"]), self.integer(next)),
            9 => format!("(({}){})", self.of(&TYPES), self.integer(next)),
            10 => format!(
                "({} ? {} : {})",
                self.integer(next),
                self.integer(next),
                self.integer(next)
            ),
            11 => format!(
                "({} {} {})",
                self.integer(next),
                self.of(&["&&", "||", "^^"]),
                self.integer(next)
            ),
            12 => format!("({} = {})", self.of(&INTEGERS), self.integer(next)),
            13 => format!(
                "({} {}= {})",
                self.of(&INTEGERS),
                self.of(&ARITHMETIC),
                self.integer(next)
            ),
            14 => {
                let place = self.of(&INTEGERS);
                format!("({})", self.of(&["%++", "%--", "++%", "--%"]).replace('%', place))
            }
            15 => self.number_call(next),
            // The index is never a constant, because a constant outside the array is refused.
            16 => format!("arr[{} + p.x]", self.integer(next)),
            _ => format!("((int *)(arg0 + 64))[{} & 7]", self.integer(next)),
        }
    }

    fn number_call(&mut self, depth: u32) -> String {
        match self.choose(7) {
            0 => format!("strlen({})", self.string(depth)),
            1 => format!("index({}, {})", self.string(depth), self.string(depth)),
            2 => format!(
                "rindex({}, {}, {})",
                self.string(depth),
                self.string(depth),
                self.integer(depth)
            ),
            3 => format!("strtoll({})", self.string(depth)),
            4 => format!("strtoll({}, {})", self.string(depth), self.integer(0)),
            5 => format!("{}({})", self.of(&["htons", "htonl", "htonll"]), self.integer(depth)),
            _ => format!(
                "index({}, {}, {})",
                self.string(depth),
                self.string(depth),
                self.integer(depth)
            ),
        }
    }

    fn string(&mut self, depth: u32) -> String {
        let kinds = if depth == 0 { 2 } else { 14 };
        let next = depth.saturating_sub(1);
        match self.choose(kinds) {
            0 => self.of(&STRINGS).to_owned(),
            1 => self.of(&["s", "this->s", "probefunc", "names[1]"]).to_owned(),
            2 => format!("strjoin({}, {})", self.string(next), self.string(next)),
            3 => format!("substr({}, {})", self.string(next), self.integer(next)),
            4 => format!(
                "substr({}, {}, {})",
                self.string(next),
                self.integer(next),
                self.integer(next)
            ),
            5 => format!(
                "{}({})",
                self.of(&["basename", "dirname", "cleanpath", "toupper", "tolower"]),
                self.string(next)
            ),
            6 => format!(
                "{}({}, {})",
                self.of(&["strchr", "strrchr"]),
                self.string(next),
                self.integer(next)
            ),
            7 => format!("strstr({}, {})", self.string(next), self.string(next)),
            8 => format!(
                "strtok({}, {})",
                self.of(&["NULL", "s", "this->s", "\"a b,c\""]),
                self.string(next)
            ),
            9 => format!("lltostr({})", self.integer(next)),
            10 => format!("lltostr({}, {})", self.integer(next), self.integer(0)),
            11 => format!("copyinstr(arg0 + ({} & 127), 20)", self.integer(next)),
            12 => format!(
                "({} ? {} : {})",
                self.integer(next),
                self.string(next),
                self.string(next)
            ),
            _ => "s".to_owned(),
        }
    }

    fn statement(&mut self) -> String {
        match self.choose(6) {
            // Assignments to strings are statements only. (A string variable that was read in an expression would
            // change with an assignment before its use.)
            5 => format!("{} = {};", self.of(&["s", "this->s", "names[1]"]), self.string(3)),
            0 | 1 => format!("trace({});", self.integer(4)),
            2 | 3 => format!("trace({});", self.string(4)),
            _ => format!(
                "if ({}) {{ trace({}); }} else {{ {}; }}",
                self.integer(2),
                self.string(2),
                self.integer(3)
            ),
        }
    }

    fn program(&mut self) -> String {
        let mut text = "struct point { short small; int x; unsigned int bits : 5; };\n\
             int i; unsigned int u; char c; unsigned short us; long l; string s; self long l; this int i; this string s;\n\
             int map[int, string]; string names[int]; struct point p; int arr[5];\n\
             BEGIN { this->i = 0; this->s = \"\"; }\n"
            .to_owned();
        for _ in 0..1 + self.choose(3) {
            let predicate = match self.choose(3) {
                0 => format!("/{}/ ", self.integer(2)),
                _ => String::new(),
            };
            let statements: Vec<String> = (0..1 + self.choose(3)).map(|_| self.statement()).collect();
            text.push_str(&format!(
                "pid$target:a.out:work:entry {predicate}{{ {} }}\n",
                statements.join(" ")
            ));
        }
        text
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_do_the_same_interpreted_and_compiled(choices in prop::collection::vec(any::<u32>(), 0..400)) {
        let text = Writer { choices: choices.into_iter() }.program();
        let options = ["strsize=32".to_owned()];
        // The text is shown with the case if something panics.
        println!("{text}");
        // The only error that is possible in such a program is the division of a constant by a constant zero.
        match guide_runner::run(&text, &options) {
            Ok(_) => {}
            Err(diagnostics) => {
                let allowed = ["D_DIV_ZERO", "D_ARR_BADREF", "N_NESTING"];
                prop_assert!(allowed.contains(&diagnostics[0].tag), "{}\n{}", diagnostics[0], text);
            }
        }
    }
}
