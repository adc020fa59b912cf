//! Names for the frames of interpreted languages: a code object and a position in it become a function, a file and a
//! line. Pure.
//!
//! ```text
//! agent:   frame of the interpreter -> code object, position      at the hit (agent/python.c, agent/hotspot.c)
//! tracer:  code object              -> names, table of lines      within milliseconds, while the object exists
//!          position                 -> line                       when the frame is printed
//! ```
//!
//! Everything that is read is the target's memory, and hostile: every read has a bound, and so has every loop. A name
//! is not shown if its object no longer is the one that the agent saw.

#![forbid(unsafe_code)]

mod code;
mod cursor;
mod frame;
pub mod hotspot;
mod memory;
pub mod python;
pub mod v8;

pub use code::{Code, without_name};
pub use cursor::Cursor;
pub use frame::{Frame, Object, POSITION_UNKNOWN};
pub use memory::{CachedMemory, Memory};

/// A function of interpreted code, as its source names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// The function's name, with the names around it where the runtime knows these: `Class.method`.
    pub name: String,
    /// The file of its source.
    pub file: String,
}

impl Function {
    /// The function at a line, as a stack shows it: `order.py:42 Order.pay`.
    pub fn at(&self, line: Option<u32>) -> String {
        let file = short(&self.file);
        if file.is_empty() {
            return self.name.clone();
        }
        match line {
            Some(line) => format!("{file}:{line} {}", self.name),
            None => format!("{file} {}", self.name),
        }
    }

    /// The function without a line.
    pub fn shown(&self) -> String {
        self.at(None)
    }
}

/// A file's name without its folders. `__init__.py` keeps its folder, which is the name of the package.
pub(crate) fn short(path: &str) -> &str {
    let Some((folders, name)) = path.rsplit_once('/') else {
        return path;
    };
    if name != "__init__.py" {
        return name;
    }
    let package = folders.rfind('/').map_or(0, |slash| slash + 1);
    path.get(package..).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_shown_with_its_file_and_line() {
        let function = |file: &str| Function {
            name: "Order.pay".to_owned(),
            file: file.to_owned(),
        };
        let shop = function("/srv/shop/order.py");
        assert_eq!(shop.at(Some(42)), "order.py:42 Order.pay");
        assert_eq!(shop.shown(), "order.py Order.pay");
        assert_eq!(
            function("/srv/shop/__init__.py").at(Some(7)),
            "shop/__init__.py:7 Order.pay"
        );
        assert_eq!(function("").at(Some(7)), "Order.pay");
        assert_eq!(function("__init__.py").at(None), "__init__.py Order.pay");
        assert_eq!(function("<string>").at(Some(1)), "<string>:1 Order.pay");
    }
}
