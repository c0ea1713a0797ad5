//! Tables that users write: whatever is in them, the answer is a distribution or an error with its
//! line.

use proptest::prelude::*;
use spandrel_sim::{Sizes, Target};

/// Text that looks like a table.
fn table() -> impl Strategy<Value = String> {
    let field = prop_oneof![
        "[0-9]{1,12}",
        "-?[0-9]{0,4}\\.?[0-9]{0,3}(e[0-9]{1,3})?",
        Just("nan".to_string()),
        "[0-9]{1,3}(KiB|MiB|GiB|X)",
        "[ #a-z\\PC]{0,6}",
    ];
    let name = prop::sample::select(vec![
        "pages",
        "bytes",
        "weight",
        "lifetime_s",
        "objects",
        "align_pages",
        "seconds",
        "other",
    ]);
    let header = prop::collection::vec(name, 1..5).prop_map(|names| names.join(","));
    let row = prop::collection::vec(field, 1..5).prop_map(|fields| fields.join(","));
    (header, prop::collection::vec(row, 0..6))
        .prop_map(|(header, rows)| format!("{header}\n{}", rows.join("\n")))
}

/// A target whose every row is right, and which is often wrong as a whole.
fn rows_of_a_target() -> impl Strategy<Value = String> {
    let row = (0..3u8, prop::sample::select(vec!["0", "1KiB", "8KiB", "1MiB"]))
        .prop_map(|(seconds, bytes)| format!("{seconds},{bytes} # {bytes}\n"));
    prop::collection::vec(row, 1..4)
        .prop_map(|rows| format!("# a\nseconds,bytes\n{}", rows.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn anything_is_understood_or_refused_with_its_line(text in prop_oneof![table(), rows_of_a_target(), "\\PC{0,80}", "(?s).{0,80}"]) {
        let lines = text.lines().count().max(1);
        for error in [Sizes::parse(&text).err(), Target::parse(&text).err()].into_iter().flatten() {
            prop_assert!(!error.message.is_empty());
            prop_assert!(error.line.is_some_and(|line| (1..=lines).contains(&line)), "{error} of {lines}");
        }
    }

    #[test]
    fn what_is_right_is_read(rows in prop::collection::vec((1u32..5000, 1u32..1000, 1u32..1000, 1u32..64), 1..30)) {
        let text = rows.iter().fold("objects,weight,lifetime_s,pages\n".to_string(), |text, (p, w, l, o)| {
            format!("{text}{o},{w},{l}.5,{p} # {p}\n\n")
        });
        let sizes = Sizes::parse(&text).unwrap();
        prop_assert_eq!(sizes.classes().len(), rows.len());
        for (class, (pages, weight, lifetime, objects)) in sizes.classes().iter().zip(&rows) {
            prop_assert_eq!((class.pages, class.objects), (*pages, *objects));
            prop_assert_eq!(class.weight, f64::from(*weight));
            prop_assert_eq!(class.lifetime_s, f64::from(*lifetime) + 0.5);
        }
    }

    #[test]
    fn a_bad_row_is_the_one_that_is_named(count in 1usize..20, bad in 0usize..20, what in "[a-z]{1,5}|-1|0") {
        let bad = bad % count;
        let row = |at: usize| if at == bad { format!("{what},1,1") } else { "1,1,1".into() };
        let rows: Vec<String> = (0..count).map(row).collect();
        let error = Sizes::parse(&format!("pages,weight,lifetime_s\n{}", rows.join("\n"))).unwrap_err();
        prop_assert_eq!(error.line, Some(bad + 2));
    }
}
