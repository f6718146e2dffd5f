//! The dependencies between the files of a target, and the cycles among its modules.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
};

use petgraph::{algo::tarjan_scc, graph::DiGraph};

use super::{
    module::{Extension, Mention, Module},
    resolve::{defining_modules, globbed_modules, macro_module},
};

/// The dependencies between the files of a target: which file uses which, and the first use.
#[derive(Debug)]
pub(super) struct Arrows<'a> {
    modules: &'a [Module],
    arrows: BTreeMap<(&'a Path, &'a Path), String>,
}

/// Sibling modules that all depend on each other; each represents its file and all files below it. Their parent module may be
/// one of them, and then represents its own file alone.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Circle {
    /// The file of the parent module.
    pub(super) inside: PathBuf,
    pub(super) modules: BTreeSet<PathBuf>,
    arrows: Vec<String>,
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} modules need each other:",
            self.inside.display(),
            self.modules.len()
        )?;
        self.arrows
            .iter()
            .try_for_each(|arrow| writeln!(f, "  {arrow}"))
    }
}

impl<'a> Arrows<'a> {
    /// All dependencies of a target.
    pub(super) fn of(modules: &'a [Module]) -> Self {
        let mut all = Self {
            modules,
            arrows: BTreeMap::new(),
        };
        for (index, module) in modules.iter().enumerate() {
            for mention in &module.mentions {
                let mut to = defining_modules(modules, index, &mention.path);
                if module.globs.contains(&mention.path) {
                    to.extend(globbed_modules(modules, index, &mention.path));
                }
                all.add(module, mention, &to);
            }
            for call in &module.macro_calls {
                all.add(module, call, &macro_module(modules, index, &call.path));
            }
            for extension in &module.extensions {
                all.add_calls(index, extension);
            }
        }
        all
    }

    /// Adds the dependencies on files that add methods to a type of another file: a caller of the method depends on the former
    /// without naming it.
    fn add_calls(&mut self, added_in: usize, extension: &Extension) {
        for of in defining_modules(self.modules, added_in, &extension.of) {
            for module in self
                .modules
                .iter()
                .filter(|module| module.file == self.modules[of].file)
            {
                let is_added = |method: &String| extension.methods.contains(method);
                let calls = module
                    .method_calls
                    .iter()
                    .filter(|call| call.path.iter().all(is_added));
                let paths =
                    module
                        .mentions
                        .iter()
                        .filter(|mention| match mention.path.as_slice() {
                            [of, method] => {
                                is_added(method)
                                    && (of == "Self" || Some(of) == extension.of.last())
                            }
                            _ => false,
                        });
                for call in calls.chain(paths) {
                    self.add(module, call, &BTreeSet::from([added_in]));
                }
            }
        }
    }

    fn add(&mut self, from: &'a Module, mention: &Mention, to: &BTreeSet<usize>) {
        for file in to
            .iter()
            .map(|to| self.modules[*to].file.as_path())
            .filter(|file| **file != from.file)
        {
            let (line, path) = (mention.line, mention.path.join("::"));
            let arrow = format!(
                "{}:{line} -> {} ({path})",
                from.file.display(),
                file.display()
            );
            self.arrows.entry((&from.file, file)).or_insert(arrow);
        }
    }

    /// Each dependency: the user, the used file, and a sentence.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Path, &Path, &str)> {
        self.arrows
            .iter()
            .map(|((from, to), arrow)| (*from, *to, arrow.as_str()))
    }

    /// Modules that depend on each other. A cycle of files is a cycle of modules inside the innermost module that contains all
    /// of them.
    pub(super) fn circles(&self) -> Vec<Circle> {
        let mut inside = BTreeMap::<&Path, BTreeMap<(&Path, &Path), Vec<&str>>>::new();
        for (from, to, arrow) in self.iter() {
            let (from, to) = (self.way_to(from), self.way_to(to));
            let common = from
                .iter()
                .zip(&to)
                .take_while(|(from, to)| from == to)
                .count();
            let Some(outer) = common.checked_sub(1).map(|last| from[last]) else {
                continue;
            };
            let ends = (
                *from.get(common).unwrap_or(&outer),
                *to.get(common).unwrap_or(&outer),
            );
            inside
                .entry(outer)
                .or_default()
                .entry(ends)
                .or_default()
                .push(arrow);
        }
        inside
            .into_iter()
            .flat_map(|(outer, arrows)| circles_among(outer, &arrows))
            .collect()
    }

    /// The files of the modules from the root to this file.
    fn way_to(&self, file: &Path) -> Vec<&'a Path> {
        let start = self.modules.iter().position(|module| module.file == file);
        let up = std::iter::successors(start, |module| self.modules[*module].parent);
        let mut files: Vec<&Path> = up
            .map(|module| self.modules[module].file.as_path())
            .collect();
        files.reverse();
        files.dedup();
        files
    }
}

fn circles_among(outer: &Path, arrows: &BTreeMap<(&Path, &Path), Vec<&str>>) -> Vec<Circle> {
    let mut graph = DiGraph::<&Path, ()>::new();
    let mut nodes = BTreeMap::new();
    for (from, to) in arrows.keys() {
        let [from, to] = [from, to].map(|module| {
            *nodes
                .entry(*module)
                .or_insert_with(|| graph.add_node(module))
        });
        graph.add_edge(from, to, ());
    }
    let groups = tarjan_scc(&graph)
        .into_iter()
        .filter(|group| group.len() > 1);
    groups
        .map(|group| {
            let modules: BTreeSet<&Path> = group.into_iter().map(|module| graph[module]).collect();
            let within = arrows
                .iter()
                .filter(|((from, to), _)| modules.contains(from) && modules.contains(to));
            let arrows =
                within.flat_map(|(_, arrows)| arrows.iter().map(|arrow| (*arrow).to_owned()));
            Circle {
                inside: outer.to_owned(),
                arrows: arrows.collect(),
                modules: modules.into_iter().map(Path::to_owned).collect(),
            }
        })
        .collect()
}
