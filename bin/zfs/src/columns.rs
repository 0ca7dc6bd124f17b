//! Property names: abbreviations, headings, and which dataset types a list shows.

use crate::args::Output;
use cli::table::Align;
use control_api::{DatasetQuery, ErrorKind, Failure};

/// The property that a user means.
pub fn canonical(name: &str) -> &str {
    match name {
        "avail" => "available",
        "refer" => "referenced",
        "compress" => "compression",
        "ratio" => "compressratio",
        "recsize" => "recordsize",
        "volblock" => "volblocksize",
        "rdonly" => "readonly",
        "reserv" => "reservation",
        "refreserv" => "refreservation",
        "lused" => "logicalused",
        "lrefer" => "logicalreferenced",
        other => other,
    }
}

/// The column's heading.
pub fn heading(name: &str) -> String {
    match name {
        "available" => "AVAIL",
        "referenced" => "REFER",
        "compression" => "COMPRESS",
        "compressratio" => "RATIO",
        "recordsize" => "RECSIZE",
        "readonly" => "RDONLY",
        "reservation" => "RESERV",
        "refreservation" => "REFRESERV",
        "logicalused" => "LUSED",
        "logicalreferenced" => "LREFER",
        "usedbysnapshots" => "USEDSNAP",
        "usedbydataset" => "USEDDS",
        "usedbychildren" => "USEDCHILD",
        "usedbyrefreservation" => "USEDREFRESERV",
        other => return other.to_uppercase(),
    }
    .to_string()
}

/// Numbers stand right.
pub fn align(name: &str) -> Align {
    const NUMBERS: [&str; 18] = [
        "used",
        "available",
        "referenced",
        "compressratio",
        "refcompressratio",
        "recordsize",
        "reservation",
        "refreservation",
        "quota",
        "refquota",
        "logicalused",
        "logicalreferenced",
        "usedbysnapshots",
        "usedbydataset",
        "usedbychildren",
        "usedbyrefreservation",
        "written",
        "copies",
    ];
    if NUMBERS.contains(&name) { Align::Right } else { Align::Left }
}

/// `-o` with `space` expanded.
pub fn expand(columns: &[String]) -> Vec<String> {
    const SPACE: [&str; 7] = ["name", "available", "used", "usedbysnapshots", "usedbydataset", "usedbyrefreservation", "usedbychildren"];
    columns
        .iter()
        .flat_map(|name| if name == "space" { SPACE.map(String::from).to_vec() } else { vec![canonical(name).to_string()] })
        .collect()
}

/// What to ask the daemon for.
pub fn query(names: &[String], output: &Output) -> Result<DatasetQuery, Failure> {
    let mut types: Vec<String> = Vec::new();
    for word in &output.types {
        match word.as_str() {
            "all" => types.extend(["filesystem", "volume", "snapshot"].map(String::from)),
            "filesystem" | "fs" => types.push("filesystem".into()),
            "volume" | "vol" => types.push("volume".into()),
            "snapshot" | "snap" => types.push("snapshot".into()),
            "bookmark" => {}
            other => return Err(Failure::new(ErrorKind::Invalid, "bad type list", format!("invalid type '{other}'"))),
        }
    }
    if output.types.is_empty() {
        types.extend(["filesystem", "volume"].map(String::from));
        if names.iter().any(|name| name.contains('@')) {
            types.push("snapshot".into());
        }
    }
    // Snapshots of a named file system are one level below it.
    let wants_snapshots = !output.types.is_empty() && types.iter().any(|kind| kind == "snapshot");
    let depth = match (output.depth, output.recursive) {
        (Some(depth), _) => Some(depth),
        (None, true) => None,
        (None, false) if names.is_empty() => None,
        (None, false) => Some(u32::from(wants_snapshots)),
    };
    Ok(DatasetQuery { names: names.to_vec(), depth, types })
}
