//! Reads templates and paths.

use std::{mem, str::FromStr};

use serde_json::{Number, Value};
use thiserror::Error;

use super::template::{Filter, Operator, Part, Path, Step, StepKind, Template};

/// How deep ranges, and filters in filters, may be.
const MAX_DEPTH: usize = 32;

/// What is wrong in a template, and where.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("column {column} of the template: {problem}")]
pub(crate) struct TemplateError {
    /// The number of the character, from 1.
    column: usize,
    problem: String,
}

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parser = Parser::new(text);
        let mut parts = Vec::new();
        // The ranges that are not closed: their columns, their paths, and the parts before each.
        let mut ranges: Vec<(usize, Path, Vec<Part>)> = Vec::new();
        while let Some(next) = parser.peek() {
            if next != '{' {
                parts.push(Part::Text(parser.take_while(|next| next != '{')));
                continue;
            }
            let column = parser.column();
            match parser.action()? {
                Action::Range(path) if ranges.len() < MAX_DEPTH => {
                    ranges.push((column, path, mem::take(&mut parts)));
                }
                Action::Range(_) => return Err(too_deep(column)),
                Action::End => {
                    let (_, path, before) = ranges
                        .pop()
                        .ok_or_else(|| error(column, "no {range …} before this {end}"))?;
                    let body = mem::replace(&mut parts, before);
                    parts.push(Part::Range(path, body));
                }
                Action::Path(mut path) => parts.push(match path.steps.pop() {
                    // A text replaces what is before it.
                    Some(Step {
                        kind: StepKind::Literal(Value::String(text)),
                        ..
                    }) => Part::Text(text),
                    last => {
                        path.steps.extend(last);
                        Part::Path(path)
                    }
                }),
            }
        }
        match ranges.pop() {
            Some((column, ..)) => Err(error(column, "no {end} after this {range …}")),
            None => Ok(Self { parts }),
        }
    }
}

/// A single path, where no template is expected: `{.metadata.name}`, `.metadata.name` or `metadata.name`.
impl FromStr for Path {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parser = Parser::new(text);
        let has_braces = parser.take_if('{');
        let mut steps = Vec::new();
        if parser
            .peek()
            .is_some_and(|next| is_name(next) || next == '\\')
        {
            parser.field("}", &mut steps)?;
        }
        steps.extend(parser.path(if has_braces { "}" } else { "" })?.steps);
        if has_braces && !parser.take_if('}') {
            return Err(parser.error("expected }"));
        }
        match parser.peek() {
            Some(_) => Err(parser.error("expected nothing after the path")),
            None if steps.is_empty() => Err(parser.error("expected a path such as .metadata.name")),
            None => Ok(Self { steps }),
        }
    }
}

fn error(column: usize, problem: impl Into<String>) -> TemplateError {
    TemplateError {
        column,
        problem: problem.into(),
    }
}

fn too_deep(column: usize) -> TemplateError {
    error(column, format!("more than {MAX_DEPTH} in each other"))
}

/// What is between braces.
enum Action {
    Range(Path),
    End,
    Path(Path),
}

/// The text that is read, and how far it is read.
struct Parser {
    text: Vec<char>,
    position: usize,
    /// The filters around the position.
    depth: usize,
}

fn is_name(next: char) -> bool {
    next.is_alphanumeric() || next == '_'
}

impl Parser {
    fn new(text: &str) -> Self {
        Self {
            text: text.chars().collect(),
            position: 0,
            depth: 0,
        }
    }

    fn column(&self) -> usize {
        self.position + 1
    }

    fn error(&self, problem: &str) -> TemplateError {
        error(self.column(), problem)
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.position).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.position += 1;
        Some(next)
    }

    fn take_if(&mut self, expected: char) -> bool {
        let is_next = self.peek() == Some(expected);
        self.position += usize::from(is_next);
        is_next
    }

    fn is_next(&self, expected: &str) -> bool {
        self.text[self.position..]
            .iter()
            .copied()
            .take(expected.len())
            .eq(expected.chars())
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> String {
        let mut text = String::new();
        while let Some(next) = self.peek().filter(|next| is_part(*next)) {
            text.push(next);
            self.position += 1;
        }
        text
    }

    fn skip_spaces(&mut self) {
        self.take_while(char::is_whitespace);
    }

    /// Reads from { to }.
    fn action(&mut self) -> Result<Action, TemplateError> {
        let column = self.column();
        self.position += 1;
        self.skip_spaces();
        let before = self.position;
        let word = self.take_while(char::is_alphabetic);
        let action = match word.as_str() {
            "range" => Action::Range(self.path("}")?),
            "end" => {
                self.skip_spaces();
                Action::End
            }
            _ => {
                self.position = before;
                Action::Path(self.path("}")?)
            }
        };
        match self.peek() {
            Some('}') => {
                self.position += 1;
                Ok(action)
            }
            Some(_) => Err(self.error("expected }")),
            None => Err(error(column, "no } for this {")),
        }
    }

    /// Reads a path to one of the characters that end it, or to the end.
    fn path(&mut self, ends: &str) -> Result<Path, TemplateError> {
        let mut steps: Vec<Step> = Vec::new();
        loop {
            self.skip_spaces();
            let column = self.column();
            let kind = match self.peek() {
                None => break,
                Some(next) if ends.contains(next) => break,
                Some('@' | '$') => {
                    self.position += 1;
                    continue;
                }
                Some('.') if self.is_next("..") => {
                    let is_repeated = steps
                        .last()
                        .is_some_and(|step| step.kind == StepKind::Descendants);
                    if is_repeated {
                        return Err(self.error("`..` follows another"));
                    }
                    self.position += 2;
                    steps.push(Step {
                        column,
                        kind: StepKind::Descendants,
                    });
                    if self.peek().is_some_and(|next| is_name(next) || next == '*') {
                        self.field(ends, &mut steps)?;
                    }
                    continue;
                }
                Some('.') => {
                    self.position += 1;
                    self.field(ends, &mut steps)?;
                    continue;
                }
                Some('[') => {
                    self.brackets(&mut steps)?;
                    continue;
                }
                Some(quote @ ('"' | '\'')) => {
                    self.position += 1;
                    StepKind::Literal(Value::String(self.quoted(quote)?))
                }
                Some(next) if next.is_ascii_digit() || matches!(next, '+' | '-') => {
                    StepKind::Literal(Value::Number(self.number()?))
                }
                Some(next) if is_name(next) => {
                    match self
                        .take_while(|next| is_name(next) || next == '-')
                        .as_str()
                    {
                        "true" => StepKind::Literal(Value::Bool(true)),
                        "false" => StepKind::Literal(Value::Bool(false)),
                        word => {
                            let problem = format!(
                                "unknown word {word}: a field begins with a dot, and a text stands in quotes"
                            );
                            return Err(error(column, problem));
                        }
                    }
                }
                Some(next) => return Err(error(column, format!("{next:?} is not expected here"))),
            };
            steps.push(Step { column, kind });
        }
        Ok(Path { steps })
    }

    /// Reads the name of a field, or `*`. Without a name it is the current object.
    fn field(&mut self, ends: &str, steps: &mut Vec<Step>) -> Result<(), TemplateError> {
        let column = self.column();
        let is_end =
            |next: char| next.is_whitespace() || ".,[]$@{}".contains(next) || ends.contains(next);
        let mut name = String::new();
        while let Some(next) = self.peek().filter(|next| !is_end(*next)) {
            self.position += 1;
            name.push(self.unescaped(next)?);
        }
        if name == "*" {
            steps.push(Step {
                column,
                kind: StepKind::Wildcard,
            });
        } else if !name.is_empty() {
            steps.push(Step {
                column,
                kind: StepKind::Field(name),
            });
        }
        Ok(())
    }

    /// The character, or the one after it if it is a backslash.
    fn unescaped(&mut self, next: char) -> Result<char, TemplateError> {
        if next != '\\' {
            return Ok(next);
        }
        self.next()
            .ok_or_else(|| self.error("expected a character after the backslash"))
    }

    /// Reads from [ to ].
    fn brackets(&mut self, steps: &mut Vec<Step>) -> Result<(), TemplateError> {
        let column = self.column();
        if self.is_next("[?(") {
            self.position += 3;
            let kind = StepKind::Filter(self.filter(column)?);
            steps.push(Step { column, kind });
            return Ok(());
        }
        self.position += 1;
        let mut alternatives = Vec::new();
        loop {
            self.skip_spaces();
            alternatives.push(self.alternative()?);
            self.skip_spaces();
            match self.next() {
                Some(',') => {}
                Some(']') => break,
                _ => return Err(error(column, "no ] for this [")),
            }
        }
        if alternatives.len() == 1 {
            steps.extend(alternatives.into_iter().flat_map(|path| path.steps));
        } else {
            let kind = StepKind::Union(alternatives);
            steps.push(Step { column, kind });
        }
        Ok(())
    }

    /// Reads what is between brackets, or commas in them.
    fn alternative(&mut self) -> Result<Path, TemplateError> {
        let column = self.column();
        let kind = match self.peek() {
            Some('*') => {
                self.position += 1;
                StepKind::Wildcard
            }
            Some(quote @ ('"' | '\'')) => {
                self.position += 1;
                return self.key(quote);
            }
            Some(':' | '-' | '0'..='9') => self.index()?,
            Some('?') => return Err(self.error("a filter is written [?(…)]")),
            _ => {
                return Err(self.error("expected an index, a slice, * or a name in quotes"));
            }
        };
        Ok(Path {
            steps: vec![Step { column, kind }],
        })
    }

    /// Reads the name of a field to the quote. As in kubectl its dots separate names, unless they follow a backslash.
    fn key(&mut self, quote: char) -> Result<Path, TemplateError> {
        let mut steps = Vec::new();
        loop {
            let (column, mut name) = (self.column(), String::new());
            let end = loop {
                match self.next() {
                    None => return Err(error(column, format!("no {quote} after this name"))),
                    Some(end) if end == '.' || end == quote => break end,
                    Some(next) => name.push(self.unescaped(next)?),
                }
            };
            let kind = StepKind::Field(name);
            steps.push(Step { column, kind });
            if end == quote {
                return Ok(Path { steps });
            }
        }
    }

    /// Reads an index, or a slice as in `1:-1:2`.
    fn index(&mut self) -> Result<StepKind, TemplateError> {
        let column = self.column();
        let mut numbers = Vec::new();
        loop {
            let text = self.take_while(|next| next.is_ascii_digit() || next == '-');
            let number = text.parse::<i64>();
            if number.is_err() && !text.is_empty() {
                return Err(error(column, format!("{text} is no index")));
            }
            numbers.push(number.ok());
            if !self.take_if(':') {
                break;
            }
        }
        match numbers[..] {
            [Some(index)] => Ok(StepKind::Index(index)),
            [start, end] => Ok(StepKind::Slice {
                start,
                end,
                interval: 1,
            }),
            [start, end, interval] => {
                let interval = usize::try_from(interval.unwrap_or(1)).unwrap_or(0);
                if interval == 0 {
                    return Err(error(column, "the interval of a slice must be positive"));
                }
                Ok(StepKind::Slice {
                    start,
                    end,
                    interval,
                })
            }
            _ => Err(error(column, "expected an index, or a slice as in 1:3")),
        }
    }

    /// Reads from after `[?(` to `)]`.
    fn filter(&mut self, column: usize) -> Result<Filter, TemplateError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(too_deep(column));
        }
        let path = self.path("!<>=~)")?;
        let place = self.column();
        let operator = match self.take_while(|next| "!<>=~".contains(next)).as_str() {
            "" => None,
            "==" => Some(Operator::Equal),
            "!=" => Some(Operator::NotEqual),
            "<" => Some(Operator::Less),
            "<=" => Some(Operator::LessOrEqual),
            ">" => Some(Operator::Greater),
            ">=" => Some(Operator::GreaterOrEqual),
            other => {
                let problem =
                    format!("unknown operator {other}; there are ==, !=, <, <=, > and >=");
                return Err(error(place, problem));
            }
        };
        let comparison = match operator {
            None => None,
            Some(operator) => {
                let other = self.path(")")?;
                if other.steps.is_empty() {
                    return Err(self.error("expected a value to compare with"));
                }
                Some((operator, other))
            }
        };
        self.depth -= 1;
        if !self.take_if(')') || !self.take_if(']') {
            return Err(error(column, "no )] for this [?("));
        }
        Ok(Filter { path, comparison })
    }

    /// Reads a text to the quote.
    fn quoted(&mut self, quote: char) -> Result<String, TemplateError> {
        let column = self.column();
        let mut text = String::new();
        loop {
            text.push(match self.next() {
                None => return Err(error(column, format!("no {quote} after this text"))),
                Some(next) if next == quote => return Ok(text),
                Some('\\') => match self.next() {
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some('r') => '\r',
                    Some(next @ ('\\' | '"' | '\'')) => next,
                    _ => {
                        return Err(error(
                            self.position,
                            "after a backslash may come n, t, r, a quote or a backslash",
                        ));
                    }
                },
                Some(next) => next,
            });
        }
    }

    fn number(&mut self) -> Result<Number, TemplateError> {
        let column = self.column();
        let text = self.take_while(|next| {
            next.is_ascii_digit() || matches!(next, '+' | '-' | '.' | 'e' | 'E')
        });
        let whole = text.parse::<i64>().map(Number::from).ok();
        let number = whole.or_else(|| text.parse().ok().and_then(Number::from_f64));
        number.ok_or_else(|| error(column, format!("{text} is no number")))
    }
}
