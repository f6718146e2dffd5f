//! Parses the modules of a compilation target: their definitions, imports, and the paths that they name.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, ImplItem, Item, ItemImpl, ItemMod, ItemUse, LitStr, Macro, Meta, Type, UseTree,
    ext::IdentExt,
    visit::{self, Visit},
};

/// A path as written, with its line.
#[derive(Debug, Clone)]
pub(super) struct Mention {
    pub(super) path: Vec<String>,
    pub(super) line: usize,
}

/// Methods that are added to a type of another module: an `impl` block without a trait.
#[derive(Debug)]
pub(super) struct Extension {
    pub(super) of: Vec<String>,
    pub(super) methods: BTreeSet<String>,
}

/// A module: a file, or a block within one.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// The file it is in, relative to the workspace.
    pub(super) file: PathBuf,
    pub(super) parent: Option<usize>,
    pub(super) children: BTreeMap<String, usize>,
    /// The names it defines, except modules.
    pub(super) items: BTreeSet<String>,
    /// `macro_rules!`, which are also visible in child modules.
    pub(super) macros: BTreeSet<String>,
    /// The imported names and their paths.
    pub(super) imports: Vec<(String, Vec<String>)>,
    pub(super) globs: Vec<Vec<String>>,
    pub(super) mentions: Vec<Mention>,
    /// Macros that are called by a name alone.
    pub(super) macro_calls: Vec<Mention>,
    pub(super) extensions: Vec<Extension>,
    /// Names of called methods.
    pub(super) method_calls: Vec<Mention>,
}

/// The modules of the target with this root, the root first. Code that is compiled for unit tests only is left out.
///
/// `read` returns the text of a file, if it exists.
pub(super) fn modules(root: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Vec<Module> {
    let mut reader = Reader {
        read,
        modules: Vec::new(),
        current: 0,
        folder: PathBuf::new(),
        blocks: 0,
    };
    let folder = root.parent().unwrap_or(Path::new("")).to_owned();
    reader.read_file(root.to_owned(), folder, None);
    reader.modules
}

struct Reader<'a> {
    read: &'a dyn Fn(&Path) -> Option<String>,
    modules: Vec<Module>,
    /// The module that is being parsed.
    current: usize,
    /// The folder of the files of its children.
    folder: PathBuf,
    /// How many blocks of code are open: items in a block are not items of the module.
    blocks: usize,
}

impl Reader<'_> {
    fn module(&mut self) -> &mut Module {
        &mut self.modules[self.current]
    }

    fn add(&mut self, file: PathBuf, parent: Option<usize>) -> usize {
        self.modules.push(Module {
            file,
            parent,
            ..Module::default()
        });
        self.modules.len() - 1
    }

    fn read_file(&mut self, file: PathBuf, folder: PathBuf, parent: Option<usize>) -> usize {
        let text = (self.read)(&file).unwrap_or_else(|| panic!("there is no {}", file.display()));
        let parsed = syn::parse_file(&text)
            .unwrap_or_else(|error| panic!("{} is not Rust: {error}", file.display()));
        let added = self.add(file, parent);
        self.read_items(added, folder, &parsed.items);
        added
    }

    fn read_items(&mut self, module: usize, folder: PathBuf, items: &[Item]) {
        let before = (
            self.current,
            std::mem::replace(&mut self.folder, folder),
            self.blocks,
        );
        (self.current, self.blocks) = (module, 0);
        for item in items {
            self.visit_item(item);
        }
        (self.current, self.folder, self.blocks) = before;
    }

    fn read_child(&mut self, item: &ItemMod) {
        let name = item.ident.unraw().to_string();
        let parent = self.current;
        let child = if let Some((_, items)) = &item.content {
            let file = self.module().file.clone();
            let added = self.add(file, Some(parent));
            self.read_items(added, self.folder.join(&name), items);
            added
        } else {
            let (file, folder) = self.child_file(item, &name);
            self.read_file(file, folder, Some(parent))
        };
        self.modules[parent].children.insert(name, child);
    }

    /// The file of a child module, and the folder of the child's own children.
    fn child_file(&self, item: &ItemMod, name: &str) -> (PathBuf, PathBuf) {
        if let Some(path) = path_attribute(&item.attrs) {
            let folder = self.modules[self.current]
                .file
                .parent()
                .unwrap_or(Path::new(""))
                .to_owned();
            let file = folder.join(path);
            let folder = file.parent().unwrap_or(Path::new("")).to_owned();
            return (file, folder);
        }
        let folder = self.folder.join(name);
        let in_folder = folder.join("mod.rs");
        let file = if (self.read)(&in_folder).is_some() {
            in_folder
        } else {
            folder.with_extension("rs")
        };
        (file, folder)
    }

    fn import(&mut self, prefix: &[String], tree: &UseTree, line: usize, is_local: bool) {
        let with = |name: &syn::Ident| [prefix, &[name.unraw().to_string()]].concat();
        let (name, path) = match tree {
            UseTree::Path(path) => {
                return self.import(&with(&path.ident), &path.tree, line, is_local);
            }
            UseTree::Group(group) => {
                return group
                    .items
                    .iter()
                    .for_each(|tree| self.import(prefix, tree, line, is_local));
            }
            UseTree::Glob(_) => {
                self.module().mentions.push(Mention {
                    path: prefix.to_vec(),
                    line,
                });
                return self.module().globs.push(prefix.to_vec());
            }
            UseTree::Name(name) if name.ident == "self" => {
                (prefix.last().cloned().unwrap_or_default(), prefix.to_vec())
            }
            UseTree::Name(name) => (name.ident.unraw().to_string(), with(&name.ident)),
            UseTree::Rename(rename) if rename.ident == "self" => {
                (rename.rename.unraw().to_string(), prefix.to_vec())
            }
            UseTree::Rename(rename) => (rename.rename.unraw().to_string(), with(&rename.ident)),
        };
        let line = match tree {
            UseTree::Name(name) => name.ident.span().start().line,
            _ => line,
        };
        self.module().mentions.push(Mention {
            path: path.clone(),
            line,
        });
        if !is_local && name != "_" {
            self.module().imports.push((name, path));
        }
    }

    fn define(&mut self, item: &Item) {
        let name = match item {
            Item::Const(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Static(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::TraitAlias(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            Item::Macro(item) => match &item.ident {
                Some(name) => {
                    self.module().macros.insert(name.to_string());
                    name
                }
                None => return,
            },
            _ => return,
        };
        self.module().items.insert(name.unraw().to_string());
    }

    /// Visits the paths among unparsed tokens: the arguments of a macro.
    fn visit_tokens(&mut self, tokens: TokenStream) {
        let mut path = Vec::new();
        let mut line = 0;
        // Whether a further name continues the path, and how many colons were seen since the last one.
        let mut colons = 0;
        let mut is_outside = false;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 || path.is_empty() {
                        self.end_of_path(&mut path, line, is_outside);
                        is_outside = colons == 2;
                        line = name.span().start().line;
                    }
                    path.push(name.unraw().to_string());
                    colons = 0;
                }
                TokenTree::Punct(sign) if sign.as_char() == ':' => colons += 1,
                other => {
                    if let TokenTree::Punct(sign) = &other
                        && sign.as_char() == '!'
                        && let [name] = path.as_slice()
                    {
                        let path = vec![name.clone()];
                        self.module().macro_calls.push(Mention { path, line });
                    }
                    self.end_of_path(&mut path, line, is_outside);
                    (colons, is_outside) = (0, false);
                    if let TokenTree::Group(group) = other {
                        self.visit_tokens(group.stream());
                    }
                }
            }
        }
        self.end_of_path(&mut path, line, is_outside);
    }

    fn end_of_path(&mut self, path: &mut Vec<String>, line: usize, is_outside: bool) {
        let path = std::mem::take(path);
        if path.len() > 1 && !is_outside {
            self.module().mentions.push(Mention { path, line });
        }
    }

    /// Attributes name functions and modules in strings, as in `#[serde(with = "…")]`.
    fn visit_strings(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.visit_strings(group.stream()),
                TokenTree::Literal(literal) => {
                    let line = literal.span().start().line;
                    let text = syn::parse2::<LitStr>(TokenTree::Literal(literal).into());
                    if let Ok(path) = text.and_then(|text| text.parse::<syn::Path>()) {
                        self.module().mentions.push(Mention {
                            path: names(&path),
                            line,
                        });
                    }
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_for_tests(attributes(item)) {
            return;
        }
        if self.blocks == 0 {
            self.define(item);
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.read_child(item);
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if item.leading_colon.is_none() {
            let is_local = self.blocks > 0;
            self.import(&[], &item.tree, item.use_token.span.start().line, is_local);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if item.trait_.is_none()
            && let Type::Path(of) = item.self_ty.as_ref()
        {
            let methods = item.items.iter().filter_map(|item| match item {
                ImplItem::Fn(method) if !is_for_tests(&method.attrs) => {
                    Some(method.sig.ident.to_string())
                }
                _ => None,
            });
            let extension = Extension {
                of: names(&of.path),
                methods: methods.collect(),
            };
            self.module().extensions.push(extension);
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        match item {
            ImplItem::Fn(method) if is_for_tests(&method.attrs) => {}
            other => visit::visit_impl_item(self, other),
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !is_for_tests(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        self.blocks += 1;
        visit::visit_block(self, block);
        self.blocks -= 1;
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            let line = path.segments[0].ident.span().start().line;
            self.module().mentions.push(Mention {
                path: names(path),
                line,
            });
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let mention = Mention {
            path: vec![call.method.to_string()],
            line: call.method.span().start().line,
        };
        self.module().method_calls.push(mention);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        if let Some(name) = call.path.get_ident() {
            let mention = Mention {
                path: vec![name.to_string()],
                line: name.span().start().line,
            };
            self.module().macro_calls.push(mention);
        }
        self.visit_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta
            && !list.path.is_ident("doc")
        {
            self.visit_tokens(list.tokens.clone());
            self.visit_strings(list.tokens.clone());
        }
        visit::visit_attribute(self, attribute);
    }
}

fn names(path: &syn::Path) -> Vec<String> {
    path.segments
        .iter()
        .map(|segment| segment.ident.unraw().to_string())
        .collect()
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes
        .iter()
        .find_map(|attribute| match &attribute.meta {
            Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
                syn::Expr::Lit(syn::ExprLit {
                    lit: syn::Lit::Str(text),
                    ..
                }) => Some(text.value()),
                _ => None,
            },
            _ => None,
        })
}

/// Whether these attributes leave the item out of everything but unit tests.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => list
            .parse_args::<Meta>()
            .is_ok_and(|condition| holds_outside_tests(&condition) == Some(false)),
        _ => false,
    })
}

/// Whether a condition of `cfg` holds when `test` does not; none if that depends on other conditions.
fn holds_outside_tests(condition: &Meta) -> Option<bool> {
    let list = match condition {
        Meta::Path(path) => return path.is_ident("test").then_some(false),
        Meta::NameValue(_) => return None,
        Meta::List(list) => list,
    };
    let conditions = list
        .parse_args_with(syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated)
        .map(|conditions| {
            conditions
                .iter()
                .map(holds_outside_tests)
                .collect::<Vec<_>>()
        })
        .unwrap_or_default();
    let is = |value| move |condition: &Option<bool>| *condition == Some(value);
    if list.path.is_ident("not") {
        return conditions
            .first()
            .copied()
            .flatten()
            .map(|condition| !condition);
    }
    let is_false = (list.path.is_ident("all") && conditions.iter().any(is(false)))
        || (list.path.is_ident("any")
            && !conditions.is_empty()
            && conditions.iter().all(is(false)));
    is_false.then_some(false)
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
