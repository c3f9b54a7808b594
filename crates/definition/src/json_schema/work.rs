//! Bounds the work of validation before it begins.
//!
//! The validator has no limits of its own. A few kilobytes of schema whose `anyOf` branches refer to
//! the same definitions take exponential time and memory, and a chain of references through a deep
//! value overflows the stack. [`SchemaWork`] follows the same references over the same value and
//! only counts. It never counts less than the validator does: no branch ends early.

use std::collections::HashMap;

use serde_json::Value;

/// The most steps between a schema and the deepest subschema that applies to a part of a value.
/// Each step takes room on the stack.
pub(super) const DEPTH_MAX: u32 = 1200;

/// The steps of a keyword that runs a regular expression.
const PATTERN_STEPS: u64 = 20;

/// The number of literal values that one step compares with.
const LITERALS_PER_STEP: u64 = 16;

/// Keywords whose subschemas apply to the value itself.
const IN_PLACE: [&str; 10] = [
    "allOf",
    "anyOf",
    "contentSchema",
    "dependencies",
    "dependentSchemas",
    "else",
    "if",
    "not",
    "oneOf",
    "then",
];

/// Keywords whose subschemas apply to every member of an object.
const TO_MEMBERS: [&str; 3] =
    ["additionalProperties", "patternProperties", "unevaluatedProperties"];

/// Keywords whose subschemas apply to every item of an array.
const TO_ITEMS: [&str; 4] = ["additionalItems", "contains", "items", "unevaluatedItems"];

/// Keywords with a map of subschemas.
const MAPS: [&str; 3] = ["dependencies", "dependentSchemas", "patternProperties"];

/// Keywords that compare with literal values.
const LITERALS: [&str; 5] = ["const", "dependencies", "dependentRequired", "enum", "required"];

/// Keywords that name another schema.
const REFERENCES: [&str; 3] = ["$dynamicRef", "$recursiveRef", "$ref"];

/// A limit that validation would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkLimit {
    /// The number of steps.
    Steps,
    /// The depth, see [`DEPTH_MAX`].
    Depth,
}

/// The subschemas of a schema and the values that each applies to.
#[derive(Debug)]
pub(super) struct SchemaWork {
    nodes: Vec<WorkNode>,
}

/// One subschema. The numbers are indices of [`SchemaWork::nodes`].
#[derive(Debug, Default)]
struct WorkNode {
    steps: u64,
    in_place: Vec<usize>,
    properties: Vec<(String, usize)>,
    to_members: Vec<usize>,
    to_names: Vec<usize>,
    to_items: Vec<usize>,
    by_index: Vec<usize>,
}

impl SchemaWork {
    pub(super) fn new(schema: &Value) -> Self {
        let mut builder = WorkBuilder::default();
        builder.index(schema);
        builder.node(schema);
        while let Some((number, schema)) = builder.todo.pop() {
            builder.nodes[number] = builder.describe(number, schema);
        }
        Self { nodes: builder.nodes }
    }

    /// Counts the steps of validating a value.
    pub(super) fn count(&self, value: &Value, steps_max: u64) -> Result<u64, WorkLimit> {
        let mut walk = WorkWalk { nodes: &self.nodes, todo: Vec::new(), steps: 0, steps_max };
        walk.push(&[0], value, 0)?;
        while let Some((number, value, depth)) = walk.todo.pop() {
            if depth >= DEPTH_MAX {
                return Err(WorkLimit::Depth);
            }
            let (node, depth) = (&self.nodes[number], depth + 1);
            walk.push(&node.in_place, value, depth)?;
            match value {
                Value::Object(members) => {
                    for (name, property) in &node.properties {
                        if let Some(member) = members.get(name) {
                            walk.push(&[*property], member, depth)?;
                        }
                    }
                    if !node.to_members.is_empty() || !node.to_names.is_empty() {
                        for member in members.values() {
                            walk.push(&node.to_members, member, depth)?;
                            walk.push(&node.to_names, &Value::Null, depth)?;
                        }
                    }
                }
                Value::Array(items) => {
                    for (item, number) in items.iter().zip(&node.by_index) {
                        walk.push(&[*number], item, depth)?;
                    }
                    if !node.to_items.is_empty() {
                        for item in items {
                            walk.push(&node.to_items, item, depth)?;
                        }
                    }
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        Ok(walk.steps)
    }
}

struct WorkWalk<'w, 'v> {
    nodes: &'w [WorkNode],
    todo: Vec<(usize, &'v Value, u32)>,
    steps: u64,
    steps_max: u64,
}

impl<'v> WorkWalk<'_, 'v> {
    /// Counts before it stores, so that the list stays within the limit too.
    fn push(&mut self, numbers: &[usize], value: &'v Value, depth: u32) -> Result<(), WorkLimit> {
        for number in numbers {
            self.steps += self.nodes[*number].steps;
            if self.steps > self.steps_max {
                return Err(WorkLimit::Steps);
            }
            self.todo.push((*number, value, depth));
        }
        Ok(())
    }
}

#[derive(Default)]
struct WorkBuilder<'s> {
    nodes: Vec<WorkNode>,
    known: HashMap<*const Value, usize>,
    todo: Vec<(usize, &'s Value)>,
    /// The document and all subschemas with an id of their own.
    roots: Vec<&'s Value>,
    anchors: HashMap<&'s str, Vec<&'s Value>>,
}

impl<'s> WorkBuilder<'s> {
    /// Collects the places that references can lead to.
    fn index(&mut self, document: &'s Value) {
        self.roots.push(document);
        let mut todo = vec![document];
        while let Some(value) = todo.pop() {
            match value {
                Value::Object(entries) => {
                    for key in ["$anchor", "$dynamicAnchor", "$id", "id"] {
                        let Some(name) = entries.get(key).and_then(Value::as_str) else { continue };
                        let is_anchor = key.ends_with("nchor");
                        match name.strip_prefix('#') {
                            None if is_anchor => self.anchors.entry(name).or_default().push(value),
                            Some(name) => self.anchors.entry(name).or_default().push(value),
                            None if !std::ptr::eq(value, document) => self.roots.push(value),
                            None => {}
                        }
                    }
                    todo.extend(entries.values());
                }
                Value::Array(items) => todo.extend(items),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
    }

    /// The number of a subschema, which is described later.
    fn node(&mut self, schema: &'s Value) -> usize {
        *self.known.entry(std::ptr::from_ref(schema)).or_insert_with(|| {
            let number = self.nodes.len();
            self.nodes.push(WorkNode::default());
            self.todo.push((number, schema));
            number
        })
    }

    fn describe(&mut self, number: usize, schema: &'s Value) -> WorkNode {
        let mut node = WorkNode { steps: 1, ..WorkNode::default() };
        let Value::Object(keywords) = schema else { return node };
        for (keyword, value) in keywords {
            let keyword = keyword.as_str();
            if LITERALS.contains(&keyword) {
                node.steps += count_values(value) / LITERALS_PER_STEP;
            }
            if matches!(keyword, "pattern" | "patternProperties") {
                node.steps += PATTERN_STEPS;
            }
            if REFERENCES.contains(&keyword)
                && let Some(reference) = value.as_str()
            {
                for target in self.targets(reference) {
                    let target = self.node(target);
                    // The validator skips a reference to its own schema.
                    if target != number {
                        node.in_place.push(target);
                    }
                }
            } else if IN_PLACE.contains(&keyword) {
                node.in_place.extend(self.subschemas(keyword, value));
            } else if keyword == "properties"
                && let Value::Object(properties) = value
            {
                let properties = properties.iter();
                node.properties =
                    properties.map(|(name, s)| (name.clone(), self.node(s))).collect();
            } else if TO_MEMBERS.contains(&keyword) {
                node.to_members.extend(self.subschemas(keyword, value));
            } else if keyword == "propertyNames" {
                node.to_names.extend(self.subschemas(keyword, value));
            } else if keyword == "prefixItems" || (keyword == "items" && value.is_array()) {
                node.by_index = self.subschemas(keyword, value);
            } else if TO_ITEMS.contains(&keyword) {
                node.to_items.extend(self.subschemas(keyword, value));
            }
        }
        // These keywords evaluate the subschemas again, to learn which members they cover.
        if keywords.keys().any(|keyword| keyword.starts_with("unevaluated")) {
            node.in_place.extend_from_within(..);
        }
        node
    }

    /// The subschemas of a keyword.
    fn subschemas(&mut self, keyword: &str, value: &'s Value) -> Vec<usize> {
        match value {
            Value::Array(schemas) => schemas.iter().map(|schema| self.node(schema)).collect(),
            Value::Object(members) if MAPS.contains(&keyword) => {
                members.values().map(|schema| self.node(schema)).collect()
            }
            other => vec![self.node(other)],
        }
    }

    /// All places that a reference may lead to. Several are possible if subschemas have ids.
    fn targets(&self, reference: &str) -> Vec<&'s Value> {
        // The validator skips it.
        if reference.is_empty() {
            return Vec::new();
        }
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let fragment = percent_decode(fragment);
        let roots = self.documents(document);
        let found: Vec<_> = if fragment.is_empty() {
            roots
        } else if fragment.starts_with('/') {
            self.roots.iter().filter_map(|root| root.pointer(&fragment)).collect()
        } else {
            self.anchors.get(fragment.as_str()).cloned().unwrap_or_default()
        };
        if found.is_empty() { self.roots.clone() } else { found }
    }

    /// The subschemas whose id ends like a reference.
    fn documents(&self, reference: &str) -> Vec<&'s Value> {
        let last = |uri: &str| {
            let uri = uri.split('#').next().unwrap_or_default();
            percent_decode(uri.rsplit('/').next().unwrap_or_default()).to_ascii_lowercase()
        };
        let wanted = last(reference);
        let id = |root: &Value| {
            let id = root.get("$id").or_else(|| root.get("id")).and_then(Value::as_str);
            id.map(last)
        };
        let mut roots = self.roots.clone();
        if !wanted.is_empty() && roots.iter().any(|root| id(root).as_ref() == Some(&wanted)) {
            roots.retain(|root| id(root).as_ref() == Some(&wanted));
        }
        roots
    }
}

/// The number of values in a value, with long texts counted by their length.
pub(super) fn count_values(value: &Value) -> u64 {
    let (mut count, mut todo) = (0, vec![value]);
    while let Some(value) = todo.pop() {
        count += 1;
        match value {
            Value::String(text) => count += text.len() as u64 / 64,
            Value::Array(items) => todo.extend(items),
            Value::Object(entries) => todo.extend(entries.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    count
}

/// Decodes `%41` to `A`.
fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| *first == b'%');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        if let Some(byte) = code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
