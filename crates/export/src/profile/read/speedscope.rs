//! Reads the JSON of speedscope, its sampled profiles.

use serde::Deserialize;

use super::{ReadError, Said, chosen};
use crate::profile::names::NameId;
use crate::profile::speedscope::SCHEMA;
use crate::profile::tree::{Side, Tree};

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "$schema")]
    schema: String,
    shared: Shared,
    profiles: Vec<Profile>,
}

#[derive(Deserialize)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Deserialize)]
struct Frame {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    name: String,
    unit: String,
    /// This member is missing in profiles of another type.
    #[serde(default)]
    samples: Vec<Vec<u32>>,
    #[serde(default)]
    weights: Vec<u64>,
}

pub(super) fn read(bytes: &[u8], kind: Option<&str>, tree: &mut Tree, side: Side) -> Result<Said, ReadError> {
    let document: Document = serde_json::from_slice(bytes)
        .map_err(|error| ReadError::damaged(format!("the JSON is not that of speedscope ({error})")))?;
    if document.schema != SCHEMA {
        return Err(ReadError::damaged("the JSON does not name the schema of speedscope"));
    }
    let kinds: Vec<&str> = document.profiles.iter().map(|profile| &*profile.name).collect();
    let at = chosen(&kinds, kind)?;
    let frames = document.shared.frames.iter();
    let names: Vec<NameId> = frames.map(|frame| tree.names.number(&frame.name)).collect();
    let Some(profile) = document.profiles.get(at) else {
        return Ok(Said::default());
    };
    if profile.samples.len() != profile.weights.len() {
        return Err(ReadError::damaged(
            "the JSON has another number of samples than of weights",
        ));
    }
    for (sample, weight) in profile.samples.iter().zip(&profile.weights) {
        let is_known = |frame: &u32| names.len() > *frame as usize;
        if !sample.iter().all(is_known) {
            return Err(ReadError::damaged(
                "a sample of the JSON names a frame that is not there",
            ));
        }
        let frames = sample.iter().filter_map(|frame| names.get(*frame as usize).copied());
        tree.add(side, frames, *weight);
    }
    let unit = match &*profile.unit {
        "none" => "",
        unit => unit,
    };
    Ok(Said {
        kind: profile.name.clone(),
        unit: unit.to_owned(),
    })
}
