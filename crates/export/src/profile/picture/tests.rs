//! Tests of the pictures.

use super::*;

fn tree(stacks: &[(&[&str], u64, u64)]) -> Tree {
    let mut tree = Tree::new();
    for (frames, before, after) in stacks {
        let frames: Vec<u32> = frames.iter().map(|frame| tree.names.number(frame)).collect();
        tree.add(BEFORE, frames.iter().copied(), *before);
        tree.add(AFTER, frames.iter().copied(), *after);
    }
    tree
}

fn picture(title: &str, tree: &Tree, wrapping: Wrapping) -> String {
    let picture = Picture {
        title,
        subtitle: "",
        unit: "hits",
        is_difference: tree.total(BEFORE) > 0,
        scale: (1, 1),
    };
    let mut out = Vec::new();
    draw(tree, &picture, wrapping, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The titles of a picture's frames, sorted.
fn titles(picture: &str) -> Vec<&str> {
    let parts = picture.split("<title>").skip(1);
    let mut titles: Vec<&str> = parts.filter_map(|part| part.split("</title>").next()).collect();
    titles.sort_unstable();
    titles
}

#[test]
fn frames_are_as_wide_as_the_sum_of_their_stacks() {
    let stacks = tree(&[(&["main", "b"], 0, 1), (&["main", "a"], 0, 2), (&["main"], 0, 1)]);
    let picture = picture("calls", &stacks, Wrapping::Svg);
    assert_eq!(
        titles(&picture),
        [
            "a (2 hits, 50.00%)",
            "all (4 hits, 100.00%)",
            "b (1 hits, 25.00%)",
            "main (4 hits, 100.00%)"
        ]
    );
    assert!(picture.contains("width=\"590.00\""), "{picture}");
}

#[test]
fn a_name_with_a_space_or_a_number_does_not_divide_its_neighbours() {
    let stacks = tree(&[
        (&["main", "f"], 0, 1),
        (&["main", "f", "h"], 0, 2),
        (&["main", "f g"], 0, 4),
        (&["main", "f 12"], 0, 8),
        (&["main 7"], 0, 16),
    ]);
    let picture = picture("calls", &stacks, Wrapping::Svg);
    assert_eq!(
        titles(&picture),
        [
            "all (31 hits, 100.00%)",
            "f (3 hits, 9.68%)",
            "f 12 (8 hits, 25.81%)",
            "f g (4 hits, 12.90%)",
            "h (2 hits, 6.45%)",
            "main (15 hits, 48.39%)",
            "main 7 (16 hits, 51.61%)"
        ]
    );
}

#[test]
fn names_are_data() {
    let stacks = tree(&[(&["operator<\"x\">&\u{7}\u{ffff};<script>"], 0, 1)]);
    for wrapping in [Wrapping::Svg, Wrapping::Html] {
        let picture = picture("</title><&>\u{1}", &stacks, wrapping);
        assert!(picture.contains("&lt;/title&gt;&lt;&amp;&gt;?"), "{picture}");
        assert!(picture.contains("operator&lt;"), "{picture}");
        assert!(picture.contains("&gt;&amp;??;&lt;script&gt; ("), "{picture}");
        assert_eq!(picture.matches("<script>").count(), 1, "{picture}");
        assert!(!picture.contains(['\u{1}', '\u{7}', '\u{ffff}']), "{picture}");
        assert_eq!(picture.matches("<g ").count(), picture.matches("</g>").count());
    }
}

#[test]
fn a_picture_can_be_clicked_and_searched_without_a_network() {
    let stacks = tree(&[(&["main"], 0, 1)]);
    for wrapping in [Wrapping::Svg, Wrapping::Html] {
        let picture = picture("calls", &stacks, wrapping);
        for part in [
            "addEventListener(\"click\"",
            "new RegExp(",
            "id=\"search\"",
            "Reset Zoom",
        ] {
            assert!(picture.contains(part), "{part}: {picture}");
        }
        for loads in ["src=", "@import", "url(http", "fetch(", "XMLHttpRequest"] {
            assert!(!picture.contains(loads), "{loads}: {picture}");
        }
    }
}

#[test]
fn a_profile_without_stacks_makes_a_picture_too() {
    let picture = picture("nothing", &Tree::new(), Wrapping::Html);
    assert!(picture.starts_with("<!DOCTYPE html>"));
    assert!(picture.contains("no stacks were recorded"), "{picture}");
}

#[test]
fn large_values_have_their_shares() {
    let stacks = tree(&[(&["a"], 0, u64::MAX / 4), (&["b"], 0, u64::MAX / 4 * 3)]);
    let picture = picture("large", &stacks, Wrapping::Svg);
    assert!(
        picture.contains(", 25.00%)</title>") && picture.contains(", 75.00%)</title>"),
        "{picture}"
    );
}

/// However many stacks there are, and however long their names, a picture has a bounded size and the right sum.
#[test]
fn a_huge_profile_makes_a_picture_of_bounded_size() {
    let mut stacks = Tree::new();
    let name = "n".repeat(250);
    for number in 0..100_000_u32 {
        let first = stacks.names.number(&format!("{name}{}", number % 300));
        let second = stacks.names.number(&format!("{name}{number}"));
        stacks.add(AFTER, [first, second, first].into_iter(), 1 + u64::from(number % 3));
    }
    let picture = picture("huge", &stacks, Wrapping::Svg);
    assert!(picture.len() < 48 << 20, "{} bytes", picture.len());
    assert!(titles(&picture).contains(&"all (199,999 hits, 100.00%)"));
}

/// The colours of the frames of a picture, by name.
fn colour_of<'p>(picture: &'p str, name: &str) -> &'p str {
    let frame = picture
        .split("<g ")
        .find(|frame| frame.contains(&format!("<title>{name} (")));
    let colour = frame.and_then(|frame| frame.split_once("fill=\"#")?.1.split('"').next());
    colour.unwrap_or_else(|| panic!("{name}: {picture}"))
}

#[test]
fn a_difference_is_red_where_there_is_more_and_blue_where_there_is_less() {
    let stacks = tree(&[
        (&["main", "more"], 30, 70),
        (&["main", "less"], 70, 30),
        (&["main", "same"], 5, 5),
    ]);
    let picture = picture("difference", &stacks, Wrapping::Svg);
    let parts = |name: &str| -> Vec<u32> {
        let colour = colour_of(&picture, name);
        let part = |at: usize| u32::from_str_radix(&colour[at..at + 2], 16).unwrap();
        [0, 2, 4].map(part).to_vec()
    };
    let more = parts("more");
    assert!(more[0] > more[2], "{more:?}");
    let less = parts("less");
    assert!(less[2] > less[0], "{less:?}");
    let same = parts("same");
    assert!(same[0] == same[2], "{same:?}");
    assert!(picture.contains("more (70 hits, 66.67%; self +38.10%)"), "{picture}");
}

#[test]
fn the_kinds_of_code_have_colours_of_their_own() {
    let stacks = tree(&[(&["a.out`main", "libc.so.6`read"], 0, 1)]);
    let picture = picture("colours", &stacks, Wrapping::Svg);
    assert_ne!(colour_of(&picture, "a.out`main"), colour_of(&picture, "libc.so.6`read"));
}

/// The script stands in SVG and in HTML, which escape differently.
#[test]
fn the_script_needs_no_escapes() {
    assert!(!SCRIPT.contains(['<', '&']), "{SCRIPT}");
}
