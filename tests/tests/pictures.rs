//! Flame graphs in a browser: frames are clicked and searched, and the picture of a difference has its colours.
//!
//! A script at the end of a copy of the picture acts like a user, and leaves its observations in the document. Chromium
//! prints the document.

use std::path::{Path, PathBuf};
use std::process::Command;

use nanoprobe_tests::command::{Finished, run};
use nanoprobe_tests::left_out::{find_command, left_out};
use nanoprobe_tests::program::program;
use nanoprobe_tests::tracer::nanoprobe;

const COUNT: &str = "pid$target:a.out:left:entry,pid$target:a.out:right:entry { @[ustack()] = count(); }";

/// Steps for both kinds of pictures. It has no character that XML would have to escape.
const STEPS: &str = r#"
const by = (id) => document.getElementById(id);
const groups = () => Array.from(document.querySelectorAll("g.f"));
const frame = (end) => groups().find((g) => g.querySelector("title").textContent.split(" (")[0].endsWith(end));
const width = (end) => Math.round(frame(end).querySelector("rect").getBoundingClientRect().width);
const shown = () => groups().filter((g) => g.style.display !== "none").length;
const hidden = (id) => by(id).style.display === "none";
const fill = (end) => getComputedStyle(frame(end).querySelector("rect")).fill;
// Sends an event to the element under a pointer in the middle of an element.
const send = (element, kind) => {
  const box = element.getBoundingClientRect();
  const met = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  met.dispatchEvent(new MouseEvent(kind, { bubbles: true }));
};
const seen = [];
const note = (what, ...values) => seen.push(what + ": " + values.join(", "));
const done = () => document.documentElement.setAttribute("data-seen", seen.join(";"));
"#;

const CLICKS: &str = r#"
const all = shown(), before = [width("`left"), width("`right"), width("`work")];
note("first", before, hidden("reset"), by("search").textContent);
send(frame("`left").querySelector("rect"), "mouseover");
note("pointer", by("details").textContent);
send(frame("`left").querySelector("rect"), "click");
note("zoom", width("`left"), frame("`right").style.display, width("`work"), hidden("reset"));
send(by("reset"), "click");
note("back", [width("`left"), width("`right"), width("`work")], shown() === all, hidden("reset"));
window.prompt = () => "righ[t]$";
const plain = fill("`right");
send(by("search"), "click");
note("search", by("matched").textContent, by("search").textContent, fill("`right"), fill("`left") === fill("`right"));
send(by("search"), "click");
note("no search", by("matched").textContent, by("search").textContent, fill("`right") === plain);
window.dispatchEvent(new KeyboardEvent("keydown", { key: "f", ctrlKey: true }));
note("ctrl-f", by("matched").textContent);
send(by("search"), "click");
window.prompt = () => "(";
send(by("search"), "click");
note("bad", by("details").textContent.includes("Invalid regular expression"), by("matched").textContent);
done();
"#;

/// The observations of [`CLICKS`] for 700 calls of `left`, 300 of `right`, both from `work`.
const CLICKED: [&str; 8] = [
    "first: 826,354,1180, true, Search",
    "pointer: shares`left (700 hits, 70.00%)",
    "zoom: 1180, none, 1180, false",
    "back: 826,354,1180, true, true",
    "search: Matched: 30.0%, Reset Search, rgb(226, 95, 226), false",
    "no search: , Search, true",
    "ctrl-f: Matched: 30.0%",
    "bad: true, ",
];

struct Browser {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl Browser {
    /// The browser, or a message that the test is left out.
    fn new(what: &str) -> Option<Browser> {
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let Some(program) = names.iter().find_map(|name| find_command(name)) else {
            left_out(what, "chromium is not installed");
            return None;
        };
        let folder = tempfile::tempdir().expect("a folder");
        let browser = Browser { program, folder };
        let page = browser.folder.path().join("page.html");
        std::fs::write(&page, "<p id=\"page\">shown</p>").expect("the page");
        let shown = browser.show(&page);
        if !shown.stdout.contains("<p id=\"page\">shown</p>") {
            let said = shown.stderr.lines().last().unwrap_or_default();
            left_out(what, &format!("chromium shows no page here: {said}"));
            return None;
        }
        Some(browser)
    }

    /// Loads a page, and prints its document.
    fn show(&self, page: &Path) -> Finished {
        let mut browser = Command::new(&self.program);
        browser.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--window-size=1300,900",
        ]);
        let profile = self.folder.path().join("profile");
        browser.arg(format!("--user-data-dir={}", profile.display()));
        run(browser.arg("--dump-dom").arg(format!("file://{}", page.display())))
    }

    /// The observations of a script in a picture, one entry for each.
    fn seen(&self, picture: &Path, script: &str) -> Vec<String> {
        let text = std::fs::read_to_string(picture).expect("the picture");
        let end = text.rfind("</svg>").expect("the picture's end");
        let copy = self
            .folder
            .path()
            .join("copy")
            .join(picture.file_name().expect("a name"));
        std::fs::create_dir_all(copy.parent().expect("a folder")).expect("a folder");
        let steps = format!("<script>(() => {{{STEPS}{script}}})();</script>");
        std::fs::write(&copy, format!("{}{steps}{}", &text[..end], &text[end..])).expect("the copy");
        let shown = self.show(&copy);
        let seen = shown.stdout.split_once("data-seen=\"");
        let seen = seen.unwrap_or_else(|| panic!("the script did not end: {}\n{}", shown.stderr, shown.stdout));
        let seen = seen.1.split('"').next().unwrap_or_default();
        seen.split(';').map(str::to_owned).collect()
    }
}

/// Counts the calls of `left` and `right` by their stacks.
fn traced(arguments: &str, flag: &str, file: &Path) {
    let mut traced = Command::new(nanoprobe());
    let command = format!("{} {arguments}", program("shares.c").display());
    run(traced.args(["-q", "-n", COUNT, flag]).arg(file).args(["-c", &command])).success();
}

#[test]
fn a_flame_graph_is_clicked_and_searched() {
    let Some(browser) = Browser::new("clicks in a flame graph") else {
        return;
    };
    for name in ["picture.svg", "picture.html"] {
        let picture = browser.folder.path().join(name);
        traced("700 300 1", "--flamegraph", &picture);
        let seen = browser.seen(&picture, CLICKS);
        assert_eq!(seen, CLICKED, "{name}");
    }
}

/// Red is more, blue is less, and the function that calls both is as before.
#[test]
fn the_picture_of_a_difference_shows_what_changed() {
    let Some(browser) = Browser::new("the picture of a difference") else {
        return;
    };
    let at = |name: &str| browser.folder.path().join(name);
    traced("700 300 1", "--folded", &at("before.txt"));
    traced("60 140 1", "--folded", &at("after.txt"));
    let picture = at("difference.svg");
    let mut diff = Command::new(nanoprobe());
    diff.arg("diff").args([at("before.txt"), at("after.txt")]);
    run(diff.arg("--flamegraph").arg(&picture)).success();
    let colours = "note(\"colours\", fill(\"`left\"), fill(\"`right\"), fill(\"`work\")); \
                   note(\"widths\", width(\"`left\"), width(\"`right\")); done();";
    assert_eq!(
        browser.seen(&picture, colours),
        [
            "colours: rgb(100, 100, 255), rgb(255, 100, 100), rgb(240, 240, 240)",
            "widths: 354, 826"
        ]
    );
}

/// The picture that README.md shows is one of these, and small enough for a page.
#[test]
fn the_picture_in_the_readme_is_searched() {
    let picture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/pictures/python.svg");
    assert!(picture.metadata().expect("the picture").len() < 100_000);
    let Some(browser) = Browser::new("the picture in README.md") else {
        return;
    };
    let search = "window.prompt = () => \"http|server[.]py\"; send(by(\"search\"), \"click\"); \
                  note(\"found\", by(\"matched\").textContent); done();";
    let seen = browser.seen(&picture, search);
    let share = seen[0]
        .strip_prefix("found: Matched: ")
        .and_then(|share| share.strip_suffix('%'));
    let share: f64 = share.expect("a share").parse().expect("a number");
    assert!(share > 50.0, "{seen:?}");
}
