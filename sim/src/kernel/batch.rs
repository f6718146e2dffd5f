//! Batches: `nfnetlink_rcv_batch` of the kernel's `net/netfilter/nfnetlink.c`.

use super::{
    apply::{self, transaction::Transaction},
    caller::Caller,
    errno::{Errno, Refusal},
    message::{self, Message},
    notify::Notice,
    ruleset::Ruleset,
    uapi::{
        BATCH_BEGIN, BATCH_END, BATCH_GENID, NLM_F_ACK, NLM_F_REQUEST, NLMSG_MIN_TYPE,
        SUBSYS_COUNT, SUBSYS_NFTABLES,
    },
};

/// An injected error, independent of the rules of nf_tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InjectedError {
    /// The refused message of the batch, from 0; none to refuse the whole batch at its commit.
    pub(super) message: Option<usize>,
    pub(super) errno: Errno,
}

/// The result of a batch.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) answers: Vec<Vec<u8>>,
    /// The notifications for listeners, if it was committed.
    pub(super) committed: Option<Vec<Notice>>,
}

/// Applies a batch: `begin` is its begin message, `rest` are those after it.
pub(super) fn apply(
    ruleset: &mut Ruleset,
    begin: &Message<'_>,
    rest: &[u8],
    caller: Caller<'_>,
    injected: Option<InjectedError>,
) -> Outcome {
    let answer = |message: &Message<'_>, errno: Errno| Outcome {
        answers: vec![message::acknowledgement(
            message,
            caller.port,
            Some(errno.into()),
        )],
        committed: None,
    };
    let subsystem = match begin.resource() {
        // Old versions of nft wrote it in host byte order.
        id if id.swap_bytes() == u16::from(SUBSYS_NFTABLES) => SUBSYS_NFTABLES,
        id if id >= SUBSYS_COUNT => return answer(begin, Errno::EINVAL),
        id => id.to_be_bytes()[1],
    };
    if subsystem != SUBSYS_NFTABLES {
        return answer(begin, Errno::EOPNOTSUPP);
    }
    match begin.attributes().u32(BATCH_GENID) {
        Ok(Some(generation)) if generation != 0 && generation != ruleset.generation => {
            return answer(begin, Errno::ERESTART);
        }
        Ok(_) => {}
        Err(refused) => return answer(begin, refused.errno),
    }
    // If the batch as a whole is invalid it is repeated with a validation after each message, to find the cause.
    let mut pass = Pass::First;
    loop {
        match run(ruleset, begin, rest, caller, injected, pass) {
            Ok(outcome) => return outcome,
            Err(again) => pass = again,
        }
    }
}

/// The mode of an attempt to apply a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    First,
    /// All tables are validated after each message, including those that the batch creates.
    ValidateAll,
    /// Only tables that existed before the batch.
    ValidateKnown,
}

/// The outcome, or the mode of the next attempt.
fn run(
    ruleset: &mut Ruleset,
    begin: &Message<'_>,
    mut rest: &[u8],
    caller: Caller<'_>,
    injected: Option<InjectedError>,
    pass: Pass,
) -> Result<Outcome, Pass> {
    let first = Message::first(rest).map(|(first, _)| first);
    let mut transaction = Transaction::new(ruleset, caller, pass == Pass::ValidateAll);
    let mut answers = Vec::new();
    if begin.has(NLM_F_ACK) {
        answers.push(message::acknowledgement(begin, caller.port, None));
    }
    let (mut failed, mut ended, mut index) = (false, None, 0);
    while let Some((message, after)) = Message::first(rest) {
        if !message.is_complete() || message.has(NLM_F_REQUEST) && message.kind == BATCH_BEGIN {
            answers.clear();
            failed = true;
            break;
        }
        if message.has(NLM_F_REQUEST) && message.kind == BATCH_END {
            ended = Some(message);
            break;
        }
        let result = match injected {
            Some(InjectedError {
                message: Some(at),
                errno,
            }) if at == index => Err(Refusal::from(errno)),
            _ => apply_one(&mut transaction, &message),
        };
        if result.is_err_and(|refused| refused.errno == Errno::ENOMEM) {
            // The kernel does not report further errors of the batch.
            let first = first.unwrap_or(message);
            answers = vec![message::acknowledgement(
                &first,
                caller.port,
                Some(Errno::ENOMEM.into()),
            )];
            failed = true;
            break;
        }
        if message.has(NLM_F_ACK) || result.is_err() {
            answers.push(message::acknowledgement(
                &message,
                caller.port,
                result.err(),
            ));
        }
        failed |= result.is_err();
        index += 1;
        rest = after;
    }
    // A batch without an end message is not committed.
    if !failed && !transaction.is_valid() && pass == Pass::First {
        transaction.abort(ruleset, true);
        return Err(if ended.is_some() {
            Pass::ValidateAll
        } else {
            Pass::ValidateKnown
        });
    }
    let Some(end) = ended.filter(|_| !failed && pass != Pass::ValidateKnown) else {
        transaction.abort(ruleset, false);
        return Ok(Outcome {
            answers,
            committed: None,
        });
    };
    let refused = match injected {
        Some(InjectedError {
            message: None,
            errno,
        }) => Err(Refusal::from(errno)),
        _ => transaction.check_bindings(),
    };
    if let (Err(refused), Some(first)) = (refused, first) {
        transaction.abort(ruleset, false);
        answers.insert(
            0,
            message::acknowledgement(&first, caller.port, Some(refused)),
        );
        return Ok(Outcome {
            answers,
            committed: None,
        });
    }
    if end.has(NLM_F_ACK) {
        answers.push(message::acknowledgement(&end, caller.port, None));
    }
    let (next, notices) = transaction.commit();
    *ruleset = next;
    Ok(Outcome {
        answers,
        committed: Some(notices),
    })
}

fn apply_one(transaction: &mut Transaction<'_>, message: &Message<'_>) -> Result<(), Refusal> {
    let is_known = message.has(NLM_F_REQUEST)
        && message.kind >= NLMSG_MIN_TYPE
        && message.subsystem() == SUBSYS_NFTABLES;
    if is_known {
        apply::apply(transaction, message)
    } else {
        Err(Refusal::from(Errno::EINVAL))
    }
}
