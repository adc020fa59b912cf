//! Samples of functions of Java that were inlined into others: beside the thread's own clock.

use std::process::Command;

use nanoprobe_tests::results::{said, stacks};

use super::java::{Program, javas};
use super::sampled_code::sampled;

/// The functions that spend the time, and who calls each.
const FUNCTIONS: [(&str, &[&str]); 3] = [
    ("left", &["part"]),
    ("right", &["part"]),
    ("deepest", &["deep", "part"]),
];
/// The function that contains all others.
const INLINE: &str = "-XX:CompileCommand=inline,Inlined::";

/// The functions of the program in a stack, innermost first.
fn own(frames: &[String]) -> Vec<&str> {
    let name = |frame: &'_ String| -> Option<usize> { Some(frame.find(" Inlined.")? + " Inlined.".len()) };
    let names = frames.iter().filter_map(|frame| frame.get(name(frame)?..));
    names
        .map(|name| name.split_once(' ').map_or(name, |(name, _)| name))
        .collect()
}

fn compare(command: &mut Command, what: &str) {
    let Some((stdout, traced)) = sampled(command, what) else {
        return;
    };
    let (mut found, mut all, mut uncertain) = ([0; 3], 0, 0);
    for (frames, count) in stacks(&traced.results) {
        let own = own(&frames);
        // The program asks for its own time in between. How long that takes depends on the machine.
        if !own.contains(&"part") || own.first() == Some(&"now") {
            continue;
        }
        all += count;
        uncertain += if frames.iter().any(|frame| frame.ends_with(" [probably]")) {
            count
        } else {
            0
        };
        // A chain of callers is one that the program has.
        let place = FUNCTIONS.iter().position(|(name, _)| own.first() == Some(name));
        let Some(place) = place else { continue };
        let callers = FUNCTIONS.get(place).map_or(&[][..], |(_, callers)| callers);
        assert!(
            own.get(1..).unwrap_or_default().starts_with(callers),
            "{what}: {frames:#?}"
        );
        if let Some(found) = found.get_mut(place) {
            *found += count;
        }
    }
    let known: i64 = found.iter().sum();
    let told = format!("{what}: {all} samples, {found:?} in the functions, {uncertain} of the next description");
    eprintln!("{told}");
    assert!(all > 0 && known * 10 > all * 8, "{told}: {}", traced.results);
    let time: i64 = FUNCTIONS.iter().map(|(name, _)| said(&stdout, name)).sum();
    for ((name, _), found) in FUNCTIONS.iter().zip(found) {
        let (right, share) = (said(&stdout, name) * 100 / time.max(1), found * 100 / all);
        assert!(
            (share - right).abs() <= 20,
            "{name}: {right} per cent of the time. {told}"
        );
    }
}

#[test]
fn samples_show_the_inlined_functions_of_java() {
    let Some(program) = Program::build("Inlined.java") else {
        return;
    };
    for java in javas() {
        for flags in [&["-XX:TieredStopAtLevel=1"][..], &["-XX:-TieredCompilation"], &[]] {
            let mut command = Command::new(&java);
            command.arg("-XX:CompileCommand=quiet");
            for function in ["left", "right", "deep", "deepest"] {
                command.arg(format!("{INLINE}{function}"));
            }
            command
                .args(flags)
                .arg("-cp")
                .arg(program.folder())
                .args(["Inlined", "2"]);
            compare(&mut command, &format!("{} {flags:?}", java.display()));
        }
    }
}
