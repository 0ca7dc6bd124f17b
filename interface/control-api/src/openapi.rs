//! `docs/openapi.json` is made from the types of this crate; the test fails when the committed file is not what they say.
//!
//! `ZIRCONIA_BLESS=1 cargo test -p control-api openapi` writes it anew.

use crate::{ROUTES, Request, Response};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// Operations of the daemon, each with what answers it when all goes well; each may answer `failed`.
const ANSWERS: &[(&str, &str)] = &[
    ("info", "info"),
    ("stop", "done"),
    ("upgrade", "done"),
    ("pool-create", "done"),
    ("pool-destroy", "done"),
    ("pool-export", "done"),
    ("pool-import-scan", "importable"),
    ("pool-import", "done or rewound"),
    ("pool-query", "pools"),
    ("pool-set", "done"),
    ("pool-reguid", "done"),
    ("pool-checkpoint", "done"),
    ("pool-split", "done"),
    ("pool-upgrade", "upgraded"),
    ("feature-list", "features"),
    ("pool-scrub", "done"),
    ("vdev-change", "done"),
    ("pool-add", "done"),
    ("vdev-remove", "done"),
    ("vdev-remove-stop", "done"),
    ("pool-reopen", "done"),
    ("pool-clear", "done or rewound"),
    ("pool-sync", "done"),
    ("pool-prefetch", "done"),
    ("pool-freeze", "done"),
    ("pool-history", "history"),
    ("pool-iostat", "iostat"),
    ("pool-events", "events or events-cleared"),
    ("inject-list", "injections"),
    ("inject-add", "injections"),
    ("inject-clear", "injections"),
    ("pool-sweep", "swept"),
    ("pool-wait", "busy"),
    ("label-clear", "done"),
    ("dataset-create", "done"),
    ("dataset-destroy", "destroyed"),
    ("dataset-query", "datasets"),
    ("userspace", "owners"),
    ("dataset-set", "done"),
    ("dataset-inherit", "done"),
    ("snapshot", "done"),
    ("dataset-rename", "done"),
    ("hold", "done"),
    ("release", "done"),
    ("holds", "holds"),
    ("bookmark", "done"),
    ("redact", "done"),
    ("dataset-clone", "done"),
    ("dataset-promote", "done"),
    ("dataset-rollback", "done"),
    ("allow", "allowed"),
    ("dataset-wait", "busy"),
    ("project", "projects"),
    ("diff", "diff"),
    ("send", "frames"),
    ("send-plan", "send-plan"),
    ("receive", "done"),
    ("allow-change", "done"),
    ("key-load", "done"),
    ("key-unload", "done"),
    ("key-change", "done"),
    ("mount", "done or mounts"),
    ("unmount", "done"),
    ("direct", "direct"),
    ("provider-list", "providers"),
    ("provider-load", "providers"),
    ("provider-unload", "done"),
    ("iscsi-list", "iscsi"),
    ("iscsi-allow", "done"),
    ("iscsi-deny", "done"),
    ("iscsi-chap", "done"),
    ("nbd-list", "nbd"),
];

/// Variants of a tagged enum: tag, description, schema of the content.
fn variants(schema: &Value, tag: &str, content: &str) -> Vec<(String, Value, Value)> {
    let list = schema["oneOf"].as_array().cloned().unwrap_or_default();
    let variant = |one: Value| {
        let name = one["properties"][tag]["const"].as_str().unwrap_or_default().to_string();
        (name, one["description"].clone(), one["properties"][content].clone())
    };
    list.into_iter().map(variant).collect()
}

fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut generator = settings.into_generator();
    generator.subschema_for::<Request>();
    generator.subschema_for::<Response>();
    let schemas: Map<String, Value> = generator.take_definitions(true);
    let answers = |op: &str| ANSWERS.iter().find(|(name, _)| *name == op).map(|(_, answer)| *answer);
    let operations: Map<String, Value> = variants(&schemas["Request"], "op", "args")
        .into_iter()
        .map(|(op, description, args)| {
            let answer = answers(&op).unwrap_or_else(|| panic!("what answers '{op}' is not written down"));
            (op, json!({"description": description, "args": args, "answers": answer}))
        })
        .collect();
    let body = |name: &str| json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{name}")}}});
    let request = json!({
        "summary": "Perform one operation",
        "description": "The body names one operation (`op`) and carries its fields (`args`); `x-operations` lists them all with what answers each.",
        "parameters": [{
            "name": "zirconia-command", "in": "header", "required": false, "schema": {"type": "string"},
            "description": "The command line that led to this request; it goes into the pool's history."
        }],
        "requestBody": {"required": true, "content": body("Request")},
        "responses": {
            "200": {"description": "Done; `kind` says what `data` is", "content": body("Response")},
            "422": {"description": "Failed: what, why, what next (`kind` is `failed`)", "content": body("Response")}
        },
        "x-operations": operations
    });
    let this = json!({"summary": "This document", "responses": {"200": {"description": "OpenAPI 3.1"}}});
    let paths: Map<String, Value> = ROUTES
        .iter()
        .map(|(method, path)| ((*path).to_string(), json!({ (method.to_lowercase()): if *method == "POST" { &request } else { &this } })))
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Zirconia control API",
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "MIT OR Apache-2.0"},
            "description": "Requests of the commands to the daemon: HTTP with JSON bodies over the unix socket `zirconiad.sock` in the state directory. \
                            Numbers are raw: bytes, counts, seconds since the epoch."
        },
        "servers": [{"url": "http://zirconia", "description": "over the unix socket"}],
        "paths": paths,
        "components": {"schemas": schemas}
    })
}

/// Programs that are written against the document would send what the daemon does not read.
#[test]
fn openapi_is_what_the_types_say() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let text = format!("{}\n", serde_json::to_string_pretty(&document()).expect("plain data"));
    if std::env::var_os("ZIRCONIA_BLESS").is_some() {
        std::fs::write(&path, &text).expect("docs/openapi.json can be written");
    }
    let committed = std::fs::read_to_string(&path).expect("docs/openapi.json");
    assert!(committed == text, "docs/openapi.json is stale: ZIRCONIA_BLESS=1 cargo test -p control-api openapi");
}

/// An operation without a line would be one that nobody can find; a line without an operation would promise what is not there.
#[test]
fn every_operation_is_described_with_its_fields_and_its_answer() {
    let document = document();
    let schemas = &document["components"]["schemas"];
    let operations = variants(&schemas["Request"], "op", "args");
    assert_eq!(operations.len(), ANSWERS.len(), "an answer is written down for an operation that is not there");
    let kinds: Vec<String> = variants(&schemas["Response"], "kind", "data").into_iter().map(|(kind, ..)| kind).collect();
    for (op, answer) in ANSWERS {
        assert!(operations.iter().any(|(name, ..)| name == op), "{op}");
        assert!(answer.split(" or ").all(|kind| kind == "frames" || kinds.iter().any(|known| known == kind)), "{op} answers {answer}");
    }
    for (name, schema) in schemas.as_object().expect("schemas") {
        assert!(schema["description"].is_string(), "{name} says nothing of itself");
        for (field, described) in schema["properties"].as_object().into_iter().flatten() {
            let text = described["description"].as_str().unwrap_or_default();
            assert!(!text.is_empty(), "{name}.{field} has no description");
        }
    }
}

/// What serde writes must be what the document calls it, or no program but ours could talk to the daemon.
#[test]
fn a_request_travels_as_the_document_says() {
    let request = Request::PoolScrub(crate::PoolScrub { pool: "tank".into(), action: crate::ScrubAction::Pause });
    let sent = serde_json::to_value(&request).expect("plain data");
    let document = document();
    let operation = &document["paths"]["/v1/request"]["post"]["x-operations"][sent["op"].as_str().expect("an op")];
    let name = operation["args"]["$ref"].as_str().and_then(|path| path.rsplit('/').next()).expect("a schema");
    let described = document["components"]["schemas"][name]["properties"].as_object().expect("fields");
    let fields: Vec<&String> = sent["args"].as_object().expect("fields").keys().collect();
    assert_eq!(fields, described.keys().collect::<Vec<_>>());
}
