//! Finds the modules that define the items of a path.

use std::collections::BTreeSet;

use super::module::Module;

/// The definition of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Definition {
    Module(usize),
    /// An item that this module defines.
    Item(usize),
}

/// The modules that define the item that `path` names in `module`, through all re-exports; none if it is an item of another
/// crate or a module.
pub(super) fn defining_modules(
    modules: &[Module],
    module: usize,
    path: &[String],
) -> BTreeSet<usize> {
    let definitions = Resolver {
        modules,
        open: Vec::new(),
    }
    .path(module, path);
    definitions
        .into_iter()
        .filter_map(|definition| match definition {
            Definition::Module(_) => None,
            Definition::Item(of) => Some(of),
        })
        .collect()
}

/// The modules that define the names that a glob import of `path` brings into `module`.
pub(super) fn globbed_modules(
    modules: &[Module],
    module: usize,
    path: &[String],
) -> BTreeSet<usize> {
    let mut found = defining_modules(modules, module, path);
    for definition in (Resolver {
        modules,
        open: Vec::new(),
    })
    .path(module, path)
    {
        if let Definition::Module(of) = definition {
            let imports = modules[of]
                .imports
                .iter()
                .flat_map(|(_, path)| defining_modules(modules, of, path));
            found.extend(imports);
            if !modules[of].items.is_empty() {
                found.insert(of);
            }
        }
    }
    found
}

/// The module at or above `module` that defines this macro.
pub(super) fn macro_module(modules: &[Module], module: usize, name: &[String]) -> BTreeSet<usize> {
    let found = defining_modules(modules, module, name);
    if !found.is_empty() {
        return found;
    }
    let above = std::iter::successors(Some(module), |module| modules[*module].parent);
    above
        .filter(|module| {
            name.iter()
                .all(|name| modules[*module].macros.contains(name))
        })
        .take(1)
        .collect()
}

struct Resolver<'a> {
    modules: &'a [Module],
    /// The names being resolved: re-exports may be cyclic.
    open: Vec<(usize, String)>,
}

impl Resolver<'_> {
    fn path(&mut self, module: usize, path: &[String]) -> BTreeSet<Definition> {
        let Some((first, mut rest)) = path.split_first() else {
            return BTreeSet::new();
        };
        let mut found = match first.as_str() {
            "crate" => BTreeSet::from([Definition::Module(0)]),
            "self" => BTreeSet::from([Definition::Module(module)]),
            "super" => self.modules[module]
                .parent
                .map(Definition::Module)
                .into_iter()
                .collect(),
            name => self.name(module, name),
        };
        while let Some((next, after)) = rest.split_first() {
            // A function may have the name of a module, but contains no items.
            if found
                .iter()
                .any(|definition| matches!(definition, Definition::Module(_)))
            {
                found.retain(|definition| matches!(definition, Definition::Module(_)));
            }
            found = found
                .into_iter()
                .flat_map(|definition| self.inside(definition, next))
                .collect();
            rest = after;
        }
        found
    }

    fn inside(&mut self, definition: Definition, name: &str) -> BTreeSet<Definition> {
        match definition {
            // A variant or an associated function is where its type is.
            Definition::Item(_) => BTreeSet::from([definition]),
            Definition::Module(module) if name == "super" => self.modules[module]
                .parent
                .map(Definition::Module)
                .into_iter()
                .collect(),
            Definition::Module(module) => self.name(module, name),
        }
    }

    fn name(&mut self, module: usize, name: &str) -> BTreeSet<Definition> {
        let key = (module, name.to_owned());
        if self.open.contains(&key) {
            return BTreeSet::new();
        }
        self.open.push(key);
        let modules = self.modules;
        let here = &modules[module];
        let mut found: BTreeSet<Definition> = here
            .children
            .get(name)
            .map(|child| Definition::Module(*child))
            .into_iter()
            .collect();
        if here.items.contains(name) {
            found.insert(Definition::Item(module));
        }
        for (_, path) in here.imports.iter().filter(|(import, _)| import == name) {
            found.extend(self.path(module, path));
        }
        if found.is_empty() {
            for path in &here.globs {
                for definition in self.path(module, path) {
                    found.extend(self.inside(definition, name));
                }
            }
        }
        self.open.pop();
        found
    }
}
