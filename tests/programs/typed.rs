//! A Rust program for the types of D: a structure, a string slice, an enumeration with values.

pub struct Point {
    pub x: i32,
    pub y: u8,
    pub name: &'static str,
}

#[allow(dead_code)]
pub enum Shape {
    Circle(u64),
    Square { side: u32 },
}

#[derive(Clone, Copy)]
pub enum Level {
    Low = 2,
    High = 9,
}

#[inline(never)]
pub fn draw(point: &Point, shape: &Shape, text: &str, level: Level, count: u16) -> u64 {
    let size = match shape {
        Shape::Circle(radius) => *radius,
        Shape::Square { side } => u64::from(*side),
    };
    let text = std::hint::black_box(text);
    size + point.x.unsigned_abs() as u64 + u64::from(point.y) + text.len() as u64 + level as u64 + u64::from(count)
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(5);
    let point = Point { x: -7, y: 1, name: "origin" };
    let mut sum = 0;
    // If a function's address is taken, the compiler does not change how the function is called.
    let draw = std::hint::black_box(draw as fn(&Point, &Shape, &str, Level, u16) -> u64);
    for round in 0..rounds {
        let shape = std::hint::black_box(Shape::Circle(5));
        let level = if round % 2 == 0 { Level::High } else { Level::Low };
        sum += draw(std::hint::black_box(&point), &shape, "abc", std::hint::black_box(level), std::hint::black_box(3));
    }
    println!("{sum} {}\nOK", point.name);
}
