//! The layout in nft's language, with comments.

use std::fmt::{self, Write};

use super::{
    DemandChain, Hook, Set, SetKind, Sizes, TABLE,
    family::Family,
    rule::Rule,
    rules::{PodRanges, chains},
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
pub(crate) fn skeleton(sizes: &Sizes, pods: PodRanges) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_skeleton(&mut text, sizes, pods);
    text
}

fn write_skeleton(text: &mut String, sizes: &Sizes, pods: PodRanges) -> fmt::Result {
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
    for chain in chains() {
        writeln!(text)?;
        let rules = chain.rules_for(pods);
        write_chain(text, chain.name, chain.comment, chain.hook, &rules)?;
    }
    writeln!(text, "}}")
}

/// The table with chains made on demand; empty without any.
pub(crate) fn on_demand(chains: impl Iterator<Item = DemandChain>) -> String {
    let mut text = String::new();
    for chain in chains {
        text.push_str(if text.is_empty() { "" } else { "\n" });
        let _ = write_chain(
            &mut text,
            &chain.to_string(),
            chain.comment(),
            chain.hook(),
            &chain.rules(),
        );
    }
    if text.is_empty() {
        text
    } else {
        format!("\ntable inet {TABLE} {{\n{text}}}\n")
    }
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

#[cfg(test)]
mod tests {
    use contiv_model_testing::mirror;

    use super::*;
    use crate::nftables::layout::rules::Chain;
    use crate::nftables::layout::{BaseChain, Choice, LearnChain, PickChain};

    /// Each rule of each chain, with the name of the chain; sorted, since rules of both families alternate in some chains.
    fn rules() -> Vec<(String, String)> {
        let fixed = chains()
            .iter()
            .map(|chain| (chain.name.to_owned(), chain.rules.clone()));
        let per_family = Family::ALL.into_iter().flat_map(|family| {
            [false, true].into_iter().flat_map(move |node_port| {
                let learn = DemandChain::Learn(LearnChain {
                    family,
                    node_port,
                    timeout: 60,
                });
                let choices = [Choice::Random, Choice::Sticky, Choice::Client];
                let pick = choices.into_iter().flat_map(move |choice| {
                    [None, Some(0), Some(2)].map(|external_slots| {
                        DemandChain::Pick(PickChain {
                            family,
                            node_port,
                            choice,
                            slots: 3,
                            external_slots,
                        })
                    })
                });
                pick.chain([learn])
            })
        });
        let on_demand = per_family.chain(BaseChain::ALL.map(DemandChain::Base));
        let on_demand = on_demand.map(|chain| (chain.to_string(), chain.rules()));
        let all = fixed.chain(on_demand).flat_map(|(name, rules)| {
            rules
                .into_iter()
                .map(move |rule| (name.clone(), rule.to_string()))
        });
        let mut all: Vec<_> = all.collect();
        all.sort();
        all
    }

    #[test]
    fn each_rule_has_its_mirror_image_in_other_family() {
        let mut images: Vec<(String, String)> = rules()
            .iter()
            .map(|(chain, rule)| (mirror::text(chain), mirror::text(rule)))
            .collect();
        images.sort();
        assert_eq!(images, rules());
    }

    #[test]
    fn chain_of_one_family_is_the_mirror_image_of_other() {
        let text = |chain: &Chain| {
            chain
                .rules
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        let all = || {
            chains()
                .iter()
                .filter(|chain| chain.name.ends_with("-v4") || chain.name.ends_with("-v6"))
        };
        assert!(all().count() > 20);
        for chain in all() {
            let image = all()
                .find(|other| other.name == mirror::text(chain.name))
                .unwrap();
            let expected: Vec<String> = text(chain).iter().map(|rule| mirror::text(rule)).collect();
            assert_eq!(text(image), expected, "{}", chain.name);
        }
    }

    #[test]
    fn set_of_one_family_is_the_mirror_image_of_other() {
        let text = |kind, family| {
            let mut text = String::new();
            Set::new(kind, family).write_text(&mut text, None).unwrap();
            text
        };
        for kind in SetKind::ALL {
            assert_eq!(
                text(kind, Family::V6),
                mirror::text(&text(kind, Family::V4))
            );
        }
    }
}
