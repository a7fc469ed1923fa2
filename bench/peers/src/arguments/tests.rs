use super::{Arguments, USAGE, chosen};
use crate::plan::{SUBJECTS, WORKLOADS};

fn parse(words: &str) -> Result<Arguments, String> {
    Arguments::parse(words.split_whitespace().map(str::to_owned))
}

#[test]
fn without_words_everybody_does_everything() {
    let arguments = parse("").expect("is valid");
    assert_eq!(arguments.workloads.len(), WORKLOADS.len());
    let mixed = arguments.workloads.iter().find(|one| one.name == "mixed");
    let mixed = mixed.expect("is there");
    assert_eq!(arguments.claims(mixed), [4_000_000, 12_800_000]);
    assert_eq!(arguments.subjects(mixed, 4_000_000), SUBJECTS);
    assert_eq!(arguments.rounds(mixed, 4_000_000), 2);
}

#[test]
fn words_choose_what_is_done() {
    let words = "--workload mixed,fanout --subjects dynamo --claims 1_000 --rounds 3";
    let arguments = parse(words).expect("is valid");
    let names: Vec<&str> = arguments.workloads.iter().map(|one| one.name).collect();
    assert_eq!(
        names,
        ["mixed", "fanout-256", "fanout-1024", "fanout-10000"]
    );
    let mixed = &arguments.workloads[0];
    assert_eq!(arguments.claims(mixed), [1_000]);
    assert_eq!(arguments.subjects(mixed, 1_000), ["dynamo-kv-router"]);
    assert_eq!(arguments.rounds(mixed, 1_000), 3);
}

#[test]
fn a_name_is_one_subject_before_it_is_a_beginning() {
    assert_eq!(chosen("kvindex", &SUBJECTS), Ok(vec!["kvindex"]));
    let both = vec!["kv-index-chain", "kv-index-positional"];
    assert_eq!(chosen("kv-index", &SUBJECTS), Ok(both));
}

#[test]
fn what_is_not_known_is_refused() {
    assert!(parse("--workload none").is_err());
    assert!(parse("--claims many").is_err());
    assert!(parse("--claims").is_err());
    let fault = parse("--fast").expect_err("is unknown");
    assert_eq!(fault, "unknown option --fast");
    assert!(USAGE.contains("--quick"));
}
