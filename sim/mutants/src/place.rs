//! Finds the code of each mutant, and puts a switch there.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use syn::{
    Arm, Block, Expr, ExprBinary, ExprStruct, ExprUnary, ImplItemFn, ItemConst, ItemFn, ItemStatic,
    Pat, Signature, TraitItemFn,
    spanned::Spanned,
    visit::{self, Visit},
};

use crate::{
    edit::{Edit, Piece},
    list::{Genre, Mutant},
};

/// The changes of a file that plant its mutants, and the mutants that cannot be switched.
pub(crate) fn edits(
    source: &str,
    mutants: &[&Mutant],
) -> Result<(Vec<Edit>, BTreeMap<u32, &'static str>), syn::Error> {
    let file = syn::parse_file(source)?;
    let mut places: BTreeMap<(usize, bool), Vec<&Mutant>> = BTreeMap::new();
    let mut unplaced = BTreeMap::new();
    for mutant in mutants {
        match mutant.span.bytes(source) {
            Some(bytes) => {
                places
                    .entry((bytes.start, mutant.genre == Genre::FnValue))
                    .or_default()
                    .push(mutant);
            }
            None => drop(unplaced.insert(mutant.number, "its place is not in the file")),
        }
    }
    let mut planter = Planter {
        source,
        places,
        edits: Vec::new(),
        placed: BTreeSet::new(),
        unplaced,
        is_const: false,
    };
    planter.visit_file(&file);
    let Planter {
        edits,
        placed,
        mut unplaced,
        ..
    } = planter;
    for mutant in mutants
        .iter()
        .filter(|mutant| !placed.contains(&mutant.number))
    {
        unplaced
            .entry(mutant.number)
            .or_insert("a part of code that cannot be switched");
    }
    Ok((edits, unplaced))
}

struct Planter<'a> {
    source: &'a str,
    /// The mutants by their first byte; those of whole functions apart.
    places: BTreeMap<(usize, bool), Vec<&'a Mutant>>,
    edits: Vec<Edit>,
    placed: BTreeSet<u32>,
    unplaced: BTreeMap<u32, &'static str>,
    /// Whether the compiler may evaluate the code that is visited.
    is_const: bool,
}

impl<'a> Planter<'a> {
    /// The mutants of some kinds that begin at this byte.
    fn take(&mut self, start: usize, genres: &[Genre]) -> Vec<&'a Mutant> {
        let is_function = genres.contains(&Genre::FnValue);
        let here = self.places.get(&(start, is_function)).into_iter().flatten();
        let mutants: Vec<&Mutant> = here
            .copied()
            .filter(|mutant| genres.contains(&mutant.genre))
            .collect();
        if self.is_const {
            self.unplaced.extend(
                mutants
                    .iter()
                    .map(|mutant| (mutant.number, "constant code, which reads no environment")),
            );
            return Vec::new();
        }
        mutants
    }

    fn plant(&mut self, at: Range<usize>, mutants: &[&Mutant], pieces: Vec<Piece>) {
        self.placed
            .extend(mutants.iter().map(|mutant| mutant.number));
        self.edits.push(Edit { at, pieces });
    }

    fn text(&self, part: Range<usize>) -> &'a str {
        &self.source[part]
    }

    fn visit_const(&mut self, visit: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.is_const, true);
        visit(self);
        self.is_const = before;
    }

    fn visit_function(
        &mut self,
        signature: &Signature,
        block: &Block,
        visit: impl FnOnce(&mut Self),
    ) {
        let before = std::mem::replace(&mut self.is_const, signature.constness.is_some());
        self.plant_values(signature, block);
        visit(self);
        self.is_const = before;
    }

    /// The function returns a value at once.
    fn plant_values(&mut self, signature: &Signature, block: &Block) {
        let open = block.brace_token.span.open().byte_range();
        let first = block
            .stmts
            .first()
            .map_or(open.start, |first| first.span().byte_range().start);
        let mut mutants = self.take(first, &[Genre::FnValue]);
        if first != open.start {
            mutants.extend(self.take(open.start, &[Genre::FnValue]));
        }
        if mutants.is_empty() {
            return;
        }
        let output = signature.output.span().byte_range();
        if self.text(output).contains("impl ") {
            let reason = "a function of an unnamed type, which returns only one";
            self.unplaced
                .extend(mutants.iter().map(|mutant| (mutant.number, reason)));
            return;
        }
        let returns = mutants.iter().map(|mutant| {
            Piece::Mutant(
                mutant.number,
                format!(
                    " if crate::contiv_mutant::is({}) {{ return {}; }}",
                    mutant.number, mutant.replacement
                ),
            )
        });
        let pieces = returns.collect();
        self.plant(open.end..open.end, &mutants, pieces);
    }

    /// One code for each mutant, and the source otherwise.
    fn plant_choice(
        &mut self,
        at: Range<usize>,
        mutants: &[&Mutant],
        code: impl Fn(&Mutant) -> String,
    ) {
        if mutants.is_empty() {
            return;
        }
        let mut pieces = vec![Piece::Text("(")];
        for mutant in mutants {
            let code = code(mutant);
            pieces.push(Piece::Mutant(
                mutant.number,
                format!(
                    "if crate::contiv_mutant::is({}) {{ {code} }} else ",
                    mutant.number
                ),
            ));
        }
        pieces.extend([
            Piece::Text("{ "),
            Piece::Source(at.clone()),
            Piece::Text(" })"),
        ]);
        self.plant(at, mutants, pieces);
    }

    /// The guard of an arm: a deleted arm has one that is false.
    fn plant_guard(&mut self, arm: &Arm) {
        let start = arm.pat.span().byte_range().start;
        let start = arm
            .attrs
            .first()
            .map_or(start, |first| first.span().byte_range().start);
        let mut mutants = self.take(start, &[Genre::MatchArm]);
        let Pat::Guard(guarded) = &arm.pat else {
            let end = arm.pat.span().byte_range().end;
            let deletions = mutants.iter().enumerate().map(|(index, mutant)| {
                let word = if index == 0 { "if" } else { "&&" };
                Piece::Mutant(
                    mutant.number,
                    format!(" {word} !crate::contiv_mutant::is({})", mutant.number),
                )
            });
            let pieces: Vec<Piece> = deletions.collect();
            if !pieces.is_empty() {
                self.plant(end..end, &mutants, pieces);
            }
            return;
        };
        let at = guarded.guard.span().byte_range();
        mutants.extend(self.take(at.start, &[Genre::MatchArmGuard]));
        if mutants.is_empty() || has_let(&guarded.guard) {
            return;
        }
        let mut pieces = Vec::new();
        for mutant in &mutants {
            let (not, and) = if mutant.replacement == "true" {
                ("", "||")
            } else {
                ("!", "&&")
            };
            pieces.push(Piece::Mutant(
                mutant.number,
                format!("({not}crate::contiv_mutant::is({}) {and} ", mutant.number),
            ));
        }
        pieces.extend([
            Piece::Text("("),
            Piece::Source(at.clone()),
            Piece::Text(")"),
        ]);
        pieces.extend(mutants.iter().map(|_| Piece::Text(")")));
        self.plant(at, &mutants, pieces);
    }
}

/// Whether an expression has a pattern, as of `if let`, which is allowed only at the top.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Planter<'_> {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.visit_function(&item.sig, &item.block, |planter| {
            visit::visit_item_fn(planter, item);
        });
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.visit_function(&item.sig, &item.block, |planter| {
            visit::visit_impl_item_fn(planter, item);
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(block) = &item.default {
            self.visit_function(&item.sig, block, |planter| {
                visit::visit_trait_item_fn(planter, item);
            });
        }
    }

    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        self.visit_const(|planter| visit::visit_item_const(planter, item));
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.visit_const(|planter| visit::visit_impl_item_const(planter, item));
    }

    fn visit_item_static(&mut self, item: &'ast ItemStatic) {
        self.visit_const(|planter| visit::visit_item_static(planter, item));
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.visit_const(|planter| visit::visit_item_enum(planter, item));
    }

    fn visit_type(&mut self, item: &'ast syn::Type) {
        self.visit_const(|planter| visit::visit_type(planter, item));
    }

    fn visit_expr_binary(&mut self, binary: &'ast ExprBinary) {
        let operator = binary.op.span().byte_range();
        if !has_let(&binary.left) && !has_let(&binary.right) {
            let mutants = self.take(operator.start, &[Genre::BinaryOperator]);
            let (left, right) = (
                binary.left.span().byte_range(),
                binary.right.span().byte_range(),
            );
            let at = left.start..right.end;
            let (before, after) = (
                self.text(left.start..operator.start),
                self.text(operator.end..right.end),
            );
            self.plant_choice(at, &mutants, |mutant| {
                format!("{before}{}{after}", mutant.replacement)
            });
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast ExprUnary) {
        let operator = unary.op.span().byte_range();
        let mutants = self.take(operator.start, &[Genre::UnaryOperator]);
        let operand = unary.expr.span().byte_range();
        let code = self.text(operand.clone());
        self.plant_choice(operator.start..operand.end, &mutants, |mutant| {
            format!("{}{code}", mutant.replacement)
        });
        visit::visit_expr_unary(self, unary);
    }

    fn visit_arm(&mut self, arm: &'ast Arm) {
        self.plant_guard(arm);
        visit::visit_arm(self, arm);
    }

    fn visit_expr_struct(&mut self, expression: &'ast ExprStruct) {
        for field in &expression.fields {
            let Some(rest) = &expression.rest else { break };
            let mutants = self.take(field.span().byte_range().start, &[Genre::StructField]);
            if mutants.is_empty() {
                continue;
            }
            let value = field.expr.span().byte_range();
            let member = self.text(field.member.span().byte_range());
            let path = self.text(expression.path.span().byte_range());
            let base = self.text(rest.span().byte_range());
            // A variable is needed by the struct itself, too.
            let base = if matches!(**rest, Expr::Path(_)) {
                format!("Clone::clone(&{base})")
            } else {
                base.to_owned()
            };
            let name = if field.colon_token.is_some() {
                ""
            } else {
                member
            };
            let number = mutants[0].number;
            let code = format!(
                "{name}{}(if crate::contiv_mutant::is({number}) {{ let base: {path} = {base}; base.{member} }} else ",
                if name.is_empty() { "" } else { ": " }
            );
            let pieces = vec![
                Piece::Mutant(number, code),
                Piece::Text("{ "),
                Piece::Source(value.clone()),
                Piece::Text(" })"),
            ];
            self.plant(value, &mutants, pieces);
        }
        visit::visit_expr_struct(self, expression);
    }
}

#[cfg(test)]
mod tests;
