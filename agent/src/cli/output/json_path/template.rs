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
        render(&self.parts, &|_| value, &mut text)?;
        Ok(text)
    }

    /// The text for a list that is in the field `items` of a value. A path that begins with an index, a slice, a filter or `[*]` is
    /// one of the list, as -o json shows that.
    ///
    /// # Errors
    /// When a path does not fit to it.
    pub(crate) fn render_list(&self, value: &Value) -> Result<String, SelectError> {
        let items = value.get("items").unwrap_or(value);
        let is_of_list = |path: &Path| path.steps.first().is_some_and(Step::is_of_list);
        let mut text = String::new();
        render(
            &self.parts,
            &|path| if is_of_list(path) { items } else { value },
            &mut text,
        )?;
        Ok(text)
    }
}

/// `root` is what a path begins with.
fn render<'a>(
    parts: &'a [Part],
    root: &dyn Fn(&Path) -> &'a Value,
    out: &mut String,
) -> Result<(), SelectError> {
    for part in parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Path(path) => {
                let found: Vec<String> = path.select(root(path))?.into_iter().map(text).collect();
                out.push_str(&found.join(" "));
            }
            Part::Range(path, body) => {
                for item in path.select(root(path))? {
                    render(body, &|_| item, out)?;
                }
            }
        }
    }
    Ok(())
}

/// The text of a value: a list or an object as JSON on one line. There every control character is escaped as JSON has it, also those
/// that serde leaves.
pub(crate) fn text(value: &Value) -> String {
    let json = match value {
        Value::String(text) => return text.clone(),
        other => other.to_string(),
    };
    if !json.contains(char::is_control) {
        return json;
    }
    let written_out = |c: char| {
        if c.is_control() {
            format!("\\u{:04x}", u32::from(c))
        } else {
            c.to_string()
        }
    };
    json.chars().map(written_out).collect()
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
    /// True if it fits to a list only, or to every item.
    const fn is_of_list(&self) -> bool {
        matches!(
            self.kind,
            StepKind::Index(_) | StepKind::Slice { .. } | StepKind::Filter(_) | StepKind::Wildcard
        )
    }

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
        let position = from_start(index, i64::try_from(length).unwrap_or(i64::MAX));
        let position = usize::try_from(position).ok();
        position
            .filter(|position| *position < length)
            .ok_or_else(|| {
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
        let whole_length = i64::try_from(length).unwrap_or(i64::MAX);
        let start = from_start(start.unwrap_or(0), whole_length);
        let end = end.map_or(whole_length, |end| from_start(end, whole_length));
        if start == end {
            // As in kubectl nothing is selected then, wherever that is.
            return Ok(&[]);
        }
        let bounds = usize::try_from(start).ok().zip(usize::try_from(end).ok());
        let slice = bounds.and_then(|(start, end)| items.get(start..end));
        slice.ok_or_else(|| {
            self.error(format!(
                "the slice is outside of the list, whose length is {length}"
            ))
        })
    }
}

/// The position of an index that counts from the end if it is negative; negative if that is before the start.
const fn from_start(index: i64, length: i64) -> i64 {
    if index < 0 { index + length } else { index }
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
