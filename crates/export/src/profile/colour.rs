//! The colours of frames, by the kind of code.

/// Modules that execute the code of another language. Their frames have the colour of the code that they execute.
const INTERPRETERS: [&str; 10] = [
    "libpython",
    "python",
    "libruby",
    "ruby",
    "libperl",
    "perl",
    "libjvm",
    "php",
    "libmono",
    "libv8",
];

/// The meaning of the colours, for the line below a title.
pub(crate) const LEGEND: &str = "orange: the program, yellow: libraries, green: code interpreted or made at run time, \
                                 pale green: interpreters, blue: the kernel, grey: no function";

/// The colour of a frame, by its module. The same name has the same colour in every picture.
pub(crate) fn colour(name: &str) -> (u8, u8, u8) {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let hash = hash ^ (hash >> 15);
    // A light variation within the colour.
    let vary = |least: u8, most: u8, bits: u32| {
        let part = u16::from((hash >> bits) as u8);
        least + (part * u16::from(most - least) / 255) as u8
    };
    if is_interpreted(name) {
        return (vary(80, 110, 0), vary(180, 200, 8), vary(80, 110, 16));
    }
    let Some((module, _)) = name.split_once('`') else {
        // Parts of a key beside the stack, and addresses without a module.
        let grey = vary(200, 220, 0);
        return (grey, grey, grey);
    };
    if module == "jit" {
        (vary(80, 110, 0), vary(180, 200, 8), vary(80, 110, 16))
    } else if INTERPRETERS.iter().any(|start| module.starts_with(start)) {
        (vary(190, 215, 0), vary(225, 240, 8), vary(185, 205, 16))
    } else if module == "kernel" || module == "vmlinux" || module.starts_with('[') || module.starts_with("linux-vdso") {
        (vary(120, 165, 0), vary(170, 205, 8), vary(225, 245, 16))
    } else if module.contains(".so") {
        (vary(235, 250, 0), vary(205, 230, 8), vary(95, 140, 16))
    } else {
        (vary(238, 250, 0), vary(140, 172, 8), vary(60, 90, 16))
    }
}

/// The ends of names of source files.
const SOURCES: [&str; 9] = [".py", ".js", ".mjs", ".cjs", ".ts", ".java", ".kt", ".scala", ".groovy"];
/// Frames of which only the kind is known.
const KINDS: [&str; 5] = ["[python]", "[java]", "[javascript]", "[jit]", "[interpreter]"];

/// Whether a frame is a function of interpreted code: the name of its file stands before its own. Code without a file
/// has a name in angle brackets there: `<frozen importlib._bootstrap> _call`.
fn is_interpreted(name: &str) -> bool {
    let Some((file, _)) = name.split_once(' ') else {
        return KINDS.contains(&name);
    };
    let is_file = SOURCES.iter().any(|end| file.ends_with(end)) || file.starts_with("node:");
    let is_text = name.starts_with('<') && name.contains("> ");
    (is_file || is_text) && !file.contains('`')
}

/// The colour of a change: red for more, blue for less, the closer to the largest change, the stronger.
pub(crate) fn colour_of_change(change: f64, largest: f64) -> (u8, u8, u8) {
    let part = (change.abs() / largest.max(f64::MIN_POSITIVE)).min(1.0);
    let weak = (245.0 - 145.0 * part) as u8;
    match change.total_cmp(&0.0) {
        _ if part < 0.001 => (240, 240, 240),
        std::cmp::Ordering::Less => (weak, weak, 255),
        _ => (255, weak, weak),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_code_differ() {
        let (red, green, blue) = colour("a.out`main");
        assert!(red > green && green > blue);
        let (red, green, _) = colour("jit`Main.run");
        assert!(green > red);
        for name in [
            "server.py do_GET",
            "<string> <module>",
            "Order.java shop.Order.pay",
            "order.mjs pay",
            "node:internal/main emit",
            "[jit]",
            "<frozen importlib._bootstrap> _call",
        ] {
            let (red, green, blue) = colour(name);
            assert!(green > red && green > blue, "{name}");
            let (pale, ..) = colour("libpython3.11.so.1.0`_PyEval_Vector");
            assert!(pale > red, "{name}");
        }
        let (red, _, blue) = colour("kernel`do_syscall_64");
        assert!(blue > red);
        let (red, green, blue) = colour("17");
        assert!(red == green && green == blue);
        let (_, library, _) = colour("libc.so.6`malloc");
        let (_, program, _) = colour("a.out`malloc");
        assert!(library > program);
    }
}
