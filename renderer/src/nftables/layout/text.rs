//! The layout in nft's language, with comments.

use std::fmt::{self, Write};

use super::{
    DemandChain, Hook, Set, SetKind, Sizes, TABLE,
    family::Family,
    rule::Rule,
    rules::{Chain, chains},
};

const HEAD: &str = "\
The part of the dataplane that does not depend on the services: a constant number of rules, all else is map elements.
Written from the rules in layout/, which the agent also programs through netlink. Tests compare this file with them, and what
the kernel lists when nft loads it with what it lists when the agent does.

An address 0.0.0.0 (or ::) in a key stands for \"any node-port address\": the rules for node ports mask the address away,
so that one element serves all addresses of the node. Chains `pick…` are created on demand, one per number of slots; so are
the base chains of features that only some services need, which jump to the chains that no rule here jumps to.
";

/// The longest line of a comment.
const MAX_LINE_WIDTH: usize = 128;

/// The part of the table that is always the same, apart from the sizes of sets. That of a table without services is the file
/// `skeleton.nft`.
pub(crate) fn skeleton(sizes: &Sizes) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_skeleton(&mut text, sizes);
    text
}

fn write_skeleton(text: &mut String, sizes: &Sizes) -> fmt::Result {
    for line in HEAD.lines() {
        writeln!(text, "{}", format!("# {line}").trim_end())?;
    }
    writeln!(text, "\ntable inet {TABLE} {{")?;
    for (number, kind) in SetKind::ALL.into_iter().enumerate() {
        if number > 0 {
            writeln!(text)?;
        }
        write_comment(text, "\t", kind.comment())?;
        for (number, family) in Family::ALL.into_iter().enumerate() {
            if number > 0 {
                writeln!(text)?;
            }
            let set = Set::new(kind, family);
            set.write_text(text, sizes.get(&set).copied())?;
        }
    }
    for Chain { name, comment, hook, rules } in chains() {
        writeln!(text)?;
        write_chain(text, name, comment, *hook, rules)?;
    }
    writeln!(text, "}}")
}

/// The table with chains made on demand; empty without any.
pub(crate) fn on_demand(chains: impl Iterator<Item = DemandChain>) -> String {
    let mut text = String::new();
    for chain in chains {
        text.push_str(if text.is_empty() { "" } else { "\n" });
        let _ = write_chain(&mut text, &chain.to_string(), chain.comment(), chain.hook(), &chain.rules());
    }
    if text.is_empty() { text } else { format!("\ntable inet {TABLE} {{\n{text}}}\n") }
}

fn write_chain(
    text: &mut String,
    name: &str,
    comment: &str,
    hook: Option<Hook>,
    rules: &[Rule],
) -> fmt::Result {
    write_comment(text, "\t", comment)?;
    writeln!(text, "\tchain {name} {{")?;
    if let Some(hook) = hook {
        writeln!(text, "\t\t{hook}")?;
    }
    for rule in rules {
        write_comment(text, "\t\t", rule.reason)?;
        writeln!(text, "\t\t{rule}")?;
    }
    writeln!(text, "\t}}")
}

fn write_comment(text: &mut String, indent: &str, comment: &str) -> fmt::Result {
    let mut line = String::new();
    for word in comment.split(' ') {
        if line.len() + word.len() >= MAX_LINE_WIDTH {
            writeln!(text, "{indent}#{line}")?;
            line.clear();
        }
        write!(line, " {word}")?;
    }
    writeln!(text, "{indent}#{line}")
}
