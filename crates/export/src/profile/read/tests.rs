//! Tests of the readers. `tests/profiles.rs` reads the output of the writers.

use std::io::Write as _;

use super::*;
use crate::profile::tree::AFTER;

fn total(bytes: &[u8], kind: Option<&str>) -> Result<u64, String> {
    let mut tree = Tree::new();
    match read(bytes, kind, &mut tree, AFTER) {
        Ok(_) => Ok(tree.total(AFTER)),
        Err(error) => Err(error.to_string()),
    }
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

#[test]
fn folded_stacks_are_read_and_other_lines_are_errors() {
    assert_eq!(total(b"main;operator new 3\nmain 4\n\n", None), Ok(7));
    assert_eq!(total(b"", None), Ok(0));
    for bad in [
        &b"main;a"[..],
        b"main 1\nmain;b -1",
        b"7",
        b"main 99999999999999999999",
        b"\x7fELF\x02\x01",
    ] {
        let error = total(bad, None).unwrap_err();
        assert!(error.contains("is no folded stack"), "{error}");
    }
}

#[test]
fn json_that_is_not_speedscope_s_is_an_error() {
    for bad in [
        "{",
        "{}",
        "{\"$schema\":\"other\",\"shared\":{\"frames\":[]},\"profiles\":[]}",
        "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"shared\":{\"frames\":[]},\"profiles\":[]}",
        "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"shared\":{\"frames\":[]},\
         \"profiles\":[{\"name\":\"a\",\"unit\":\"none\",\"samples\":[[0]],\"weights\":[1]}]}",
        "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"shared\":{\"frames\":[]},\
         \"profiles\":[{\"name\":\"a\",\"unit\":\"none\",\"samples\":[[]],\"weights\":[1,2]}]}",
    ] {
        assert!(total(bad.as_bytes(), None).is_err(), "{bad}");
    }
    let nested = "{\"shared\":".to_owned() + &"[".repeat(100_000);
    assert!(total(nested.as_bytes(), None).is_err());
}

#[test]
fn compressed_data_that_expand_without_end_are_refused() {
    let bomb = compressed(&vec![0; 64 << 20]);
    assert!(bomb.len() < 1 << 20);
    let error = total(&bomb, None).unwrap_err();
    assert!(error.contains("when expanded"), "{error}");
    let error = total(&compressed(b"\x0a\x7f"), None).unwrap_err();
    assert!(error.contains("no profile.proto"), "{error}");
    let mut cut_off = compressed(b"\x0a\x00");
    cut_off.truncate(cut_off.len() - 4);
    assert!(total(&cut_off, None).unwrap_err().contains("damaged"));
}

#[test]
fn a_profile_is_chosen_by_its_name() {
    assert_eq!(chosen(&["@a", "@b"], None).unwrap(), 0);
    assert_eq!(chosen(&["@a", "@b"], Some("b")).unwrap(), 1);
    let error = chosen(&["@a", "@b"], Some("c")).unwrap_err().to_string();
    assert_eq!(error, "it has no profile \"c\", but \"@a\", \"@b\"");
    assert!(chosen(&[], None).is_err());
}
