//! Templates and paths, and what they select.

use std::cmp::Ordering;

use serde_json::Value;
use thiserror::Error;

/// Texts, and values that paths select.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    pub(super) parts: Vec<Part>,
}

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Text(String),
    /// The selected values, separated by spaces.
    Path(Path),
    /// The parts once for each selected value, with that as the current object.
    Range(Path, Vec<Self>),
}

/// Selects values: each step begins with those of the one before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Path {
    pub(super) steps: Vec<Step>,
}

/// A step, and where it is in the template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    /// The number of its first character, from 1.
    pub(super) column: usize,
    pub(super) kind: StepKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StepKind {
    Field(String),
    /// Every field, or every item.
    Wildcard,
    /// The value, and all objects and lists in it.
    Descendants,
    /// An item, from the end if negative.
    Index(i64),
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        interval: usize,
    },
    Union(Vec<Path>),
    Filter(Filter),
    Literal(Value),
}

/// Selects items of a list: those in which the path selects something, or a value that compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filter {
    pub(super) path: Path,
    pub(super) comparison: Option<(Operator, Path)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Why a path selects nothing from a value.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("column {column} of the template: {problem}")]
pub(crate) struct SelectError {
    column: usize,
    problem: String,
}

impl Template {
    /// The text for a value.
    ///
    /// # Errors
    /// When a path does not fit to it.
    pub(crate) fn render(&self, value: &Value) -> Result<String, SelectError> {
        let mut text = String::new();
        render(&self.parts, value, &mut text)?;
        Ok(text)
    }
}

fn render(parts: &[Part], value: &Value, out: &mut String) -> Result<(), SelectError> {
    for part in parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Path(path) => {
                let found: Vec<String> = path.select(value)?.into_iter().map(text).collect();
                out.push_str(&found.join(" "));
            }
            Part::Range(path, body) => {
                for item in path.select(value)? {
                    render(body, item, out)?;
                }
            }
        }
    }
    Ok(())
}

/// The text of a value: a list or an object as JSON on one line. Stored text may contain anything: control characters are escaped, except
/// ends of lines and tabs.
pub(crate) fn text(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let is_unsafe = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(is_unsafe) {
        return text;
    }
    let written_out = |c: char| {
        if is_unsafe(c) {
            c.escape_default().to_string()
        } else {
            c.to_string()
        }
    };
    text.chars().map(written_out).collect()
}

impl Path {
    /// The selected values.
    ///
    /// # Errors
    /// When a list is not as long as an index says, is no list, or when values of different types are compared.
    pub(crate) fn select<'a>(&'a self, root: &'a Value) -> Result<Vec<&'a Value>, SelectError> {
        self.steps
            .iter()
            .try_fold(vec![root], |values, step| step.select(&values))
    }

    /// The only selected value; none if nothing is selected.
    fn select_one<'a>(
        &'a self,
        root: &'a Value,
        column: usize,
    ) -> Result<Option<&'a Value>, SelectError> {
        match self.select(root)?[..] {
            [] => Ok(None),
            [value] => Ok(Some(value)),
            ref several => Err(SelectError {
                column,
                problem: format!("{} values are selected; compare one", several.len()),
            }),
        }
    }
}

impl Step {
    fn select<'a>(&'a self, values: &[&'a Value]) -> Result<Vec<&'a Value>, SelectError> {
        let mut found = Vec::new();
        // kubectl passes over null.
        for value in values.iter().copied().filter(|value| !value.is_null()) {
            match &self.kind {
                StepKind::Field(name) => found.extend(value.get(name)),
                StepKind::Wildcard => found.extend(children(value)),
                StepKind::Descendants => add_descendants(value, &mut found),
                StepKind::Index(index) => {
                    let items = self.items(value)?;
                    found.push(&items[self.position(*index, items.len())?]);
                }
                StepKind::Slice {
                    start,
                    end,
                    interval,
                } => {
                    let items = self.slice(self.items(value)?, *start, *end)?;
                    found.extend(items.iter().step_by(*interval));
                }
                StepKind::Filter(filter) => {
                    for item in self.items(value)? {
                        if filter.selects(item, self.column)? {
                            found.push(item);
                        }
                    }
                }
                StepKind::Union(_) | StepKind::Literal(_) => {}
            }
        }
        match &self.kind {
            // First all that the first path selects, as in kubectl.
            StepKind::Union(paths) => {
                for path in paths {
                    for value in values {
                        found.extend(path.select(value)?);
                    }
                }
            }
            StepKind::Literal(value) => found.push(value),
            _ => {}
        }
        Ok(found)
    }

    fn error(&self, problem: String) -> SelectError {
        SelectError {
            column: self.column,
            problem,
        }
    }

    fn items<'a>(&self, value: &'a Value) -> Result<&'a [Value], SelectError> {
        let items = value.as_array().map(Vec::as_slice);
        items.ok_or_else(|| self.error(format!("{} is no list", described(value))))
    }

    /// The position of an index.
    fn position(&self, index: i64, length: usize) -> Result<usize, SelectError> {
        let position = from_start(index, length).filter(|position| *position < length);
        position.ok_or_else(|| {
            self.error(format!(
                "the index {index} is outside of the list, whose length is {length}"
            ))
        })
    }

    fn slice<'a>(
        &self,
        items: &'a [Value],
        start: Option<i64>,
        end: Option<i64>,
    ) -> Result<&'a [Value], SelectError> {
        let length = items.len();
        let position = |index: Option<i64>, default| {
            index.map_or(Some(default), |index| from_start(index, length))
        };
        let slice = position(start, 0).zip(position(end, length));
        match slice {
            Some((start, end)) if start == end => Ok(&[]),
            _ => slice
                .and_then(|(start, end)| items.get(start..end))
                .ok_or_else(|| {
                    self.error(format!(
                        "the slice is outside of the list, whose length is {length}"
                    ))
                }),
        }
    }
}

/// The position of an index that counts from the end if it is negative; none if that is before the start.
fn from_start(index: i64, length: usize) -> Option<usize> {
    let distance = usize::try_from(index.unsigned_abs()).ok()?;
    if index < 0 {
        length.checked_sub(distance)
    } else {
        Some(distance)
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    }
}

/// Adds the value and what is in it: objects and lists that are not empty.
fn add_descendants<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    let children = children(value);
    if children.is_empty() {
        return;
    }
    found.push(value);
    for child in children {
        add_descendants(child, found);
    }
}

impl Filter {
    fn selects(&self, item: &Value, column: usize) -> Result<bool, SelectError> {
        let Some((operator, other)) = &self.comparison else {
            // What does not fit is not there.
            return Ok(self.path.select(item).is_ok_and(|found| !found.is_empty()));
        };
        let (one, other) = (
            self.path.select_one(item, column)?,
            other.select_one(item, column)?,
        );
        let Some((one, other)) = one.zip(other) else {
            return Ok(false);
        };
        let ordering = match (one, other) {
            (Value::String(one), Value::String(other)) => Some(one.cmp(other)),
            (Value::Bool(one), Value::Bool(other)) => Some(one.cmp(other)),
            (Value::Number(one), Value::Number(other)) => match (one.as_i128(), other.as_i128()) {
                (Some(one), Some(other)) => Some(one.cmp(&other)),
                _ => one.as_f64().partial_cmp(&other.as_f64()),
            },
            (Value::Null, Value::Null) => Some(Ordering::Equal),
            (Value::Null, _) | (_, Value::Null) => None,
            _ => {
                let problem = format!(
                    "cannot compare {} with {}",
                    described(one),
                    described(other)
                );
                return Err(SelectError { column, problem });
            }
        };
        Ok(operator.accepts(ordering))
    }
}

impl Operator {
    /// None is the ordering of values of which only one is null.
    fn accepts(self, ordering: Option<Ordering>) -> bool {
        match self {
            Self::Equal => ordering == Some(Ordering::Equal),
            Self::NotEqual => ordering != Some(Ordering::Equal),
            Self::Less => ordering == Some(Ordering::Less),
            Self::LessOrEqual => ordering.is_some_and(Ordering::is_le),
            Self::Greater => ordering == Some(Ordering::Greater),
            Self::GreaterOrEqual => ordering.is_some_and(Ordering::is_ge),
        }
    }
}

/// A value in an error.
fn described(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the text {text:?}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}
