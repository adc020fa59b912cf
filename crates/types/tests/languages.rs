//! C++ and Rust: references, classes with bases, namespaces; Rust's structures and enumerations.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{compile_text, info, signature, structure};
use nanoprobe_lang::program::Type;
use nanoprobe_lang::target::ArgumentPlace;
use nanoprobe_lang::types;
use nanoprobe_types::{Kind, Problem, at_entry};

const CPP: &str = r#"
    #include <string>
    namespace shapes {
    enum class Kind : unsigned char { Round = 1, Flat = 200 };
    struct Base { long id; virtual ~Base() {} static int made; };
    int Base::made = 3;
    struct Other { int weight; };
    class Circle : public Base, public Other {
    public:
        Circle(int r) : radius(r) {}
        int area(int factor) const { return radius * radius * factor; }
        int radius;
        Kind kind = Kind::Flat;
    };
    struct Virtual : virtual Other { int own; };
    }
    using shapes::Circle;
    int measure(const Circle &circle, Circle &&other, std::string text, int last) {
        return circle.area(2) + other.radius + (int)text.size() + last;
    }
    std::string made(int n) { return std::string(n, 'x'); }
    shapes::Virtual v;
    int main() { Circle c(2); return measure(c, Circle(1), made(3), 4); }
"#;

#[test]
fn classes_have_their_bases_members() {
    let program = compile_text("g++", "cpp", CPP, &["-g"]);
    let info = info(&program.path).unwrap();
    let lines = structure(&info, "Circle");
    assert_eq!(
        lines,
        [
            "0 struct Base ",
            "16 struct Other ",
            "20 int radius",
            "24 enum Kind kind",
            "32 bytes"
        ]
    );
    assert_eq!(structure(&info, "shapes::Circle"), lines);
    let Type::Structure(circle) = info.type_named(Kind::Structure, "Circle").unwrap() else {
        panic!("no structure");
    };
    assert_eq!(circle.member("id").unwrap().offset, 8);
    assert_eq!(circle.member("weight").unwrap().offset, 16);
    assert!(circle.member("made").is_none());
    // The place of a virtual base depends on the object.
    assert!(!structure(&info, "Virtual").iter().any(|line| line.contains("Other")));
    assert_eq!(info.enumerator("Flat"), Some(200));
    assert!(matches!(
        info.type_named(Kind::Structure, "shapes::Nobody"),
        Err(Problem::Unknown { .. })
    ));
}

#[test]
fn references_are_pointers_and_objects_with_destructors_are_passed_by_address() {
    let program = compile_text("g++", "cpp", CPP, &["-g"]);
    let info = info(&program.path).unwrap();
    let shown = |function: &str| -> Vec<(String, ArgumentPlace)> {
        let arguments = at_entry(&signature(&program.path, &info, function).unwrap());
        let line = |argument: nanoprobe_lang::target::Argument| {
            (
                format!("{} {}", types::name(&argument.value_type), argument.name),
                argument.place,
            )
        };
        arguments.into_iter().map(line).collect()
    };
    let entry = shown("_Z7measure");
    assert_eq!(entry[0], ("class Circle * circle".to_owned(), ArgumentPlace::Words(0)));
    assert_eq!(entry[1], ("class Circle * other".to_owned(), ArgumentPlace::Words(1)));
    assert_eq!(entry[2].1, ArgumentPlace::Behind(2));
    assert_eq!(entry[3], ("int last".to_owned(), ArgumentPlace::Words(3)));
    // The address of the result comes first.
    assert_eq!(shown("_Z4made")[0].1, ArgumentPlace::Words(1));
    assert_eq!(
        shown("_ZNK6shapes6Circle4area"),
        [
            ("class Circle * this".to_owned(), ArgumentPlace::Words(0)),
            ("int factor".to_owned(), ArgumentPlace::Words(1))
        ]
    );
}

const RUST: &str = r#"
    pub struct Point { pub x: i32, pub y: u8, pub name: &'static str }
    pub enum Shape { Circle(u64), Square { side: u32 }, Empty }
    #[derive(Clone, Copy)]
    pub enum Level { Low = 2, High = 9 }
    pub struct Wrapped(u64);
    #[inline(never)]
    pub fn draw(point: &Point, shape: &Shape, text: &str, level: Level, count: u16) -> u64 {
        let size = match shape { Shape::Circle(r) => *r, Shape::Square { side } => u64::from(*side), Shape::Empty => 0 };
        size + point.x as u64 + text.len() as u64 + level as u64 + u64::from(count)
    }
    #[inline(never)]
    pub fn moved(point: Point, wrapped: Wrapped, pair: (u8, u8), last: u32) -> u32 {
        point.x as u32 + wrapped.0 as u32 + u32::from(pair.0) + last
    }
    fn main() {
        let point = Point { x: -7, y: 1, name: "p" };
        println!("{}", draw(&point, &Shape::Circle(5), "abc", Level::High, 3) + draw(&point, &Shape::Square { side: 1 }, "", Level::Low, 0)
            + draw(&point, &Shape::Empty, "", Level::Low, 0));
        println!("{}", moved(point, Wrapped(1), (2, 3), 4));
    }
"#;

#[test]
fn rust_s_structures_and_enumerations_are_read() {
    let program = compile_text("rustc", "rs", RUST, &["-g"]);
    let info = info(&program.path).unwrap();
    let point = structure(&info, "Point");
    assert!(point.iter().any(|line| line.ends_with("int x")), "{point:?}");
    assert!(point.iter().any(|line| line.ends_with("struct &str name")), "{point:?}");
    assert_eq!(structure(&info, "&str").last().unwrap(), "16 bytes");
    let shape = structure(&info, "Shape");
    for name in ["__discriminant", "Circle", "Square", "Empty"] {
        assert!(
            shape.iter().any(|line| line.ends_with(&format!(" {name}"))),
            "{shape:?}"
        );
    }
    let Type::Structure(shape) = info.type_named(Kind::Structure, "Shape").unwrap() else {
        panic!("no structure");
    };
    let Type::Structure(circle) = shape.member("Circle").unwrap().member_type else {
        panic!("no structure");
    };
    assert_eq!(circle.member("__0").unwrap().member_type, Type::U64);
    assert_eq!(info.enumerator("High"), Some(9));
}

#[test]
fn rust_s_arguments_have_places_where_these_are_certain() {
    let program = compile_text("rustc", "rs", RUST, &["-g"]);
    let info = info(&program.path).unwrap();
    let places = |function: &str| -> Vec<ArgumentPlace> {
        let arguments = at_entry(&signature(&program.path, &info, function).unwrap());
        arguments.into_iter().map(|argument| argument.place).collect()
    };
    use ArgumentPlace::{Behind, Words};
    // A &str is two words.
    assert_eq!(places("draw"), [Words(0), Words(1), Words(2), Words(4), Words(5)]);
    let moved = places("moved");
    assert_eq!(moved[..2], [Behind(0), Words(1)]);
    // It is not defined whether the two bytes are passed in one register or in two.
    assert!(matches!(moved[2], ArgumentPlace::Unreadable(_)));
    assert!(matches!(moved[3], ArgumentPlace::Unreadable(_)));
}
