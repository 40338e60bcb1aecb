//! "Did you mean …?"

/// The word that was probably meant: the nearest one, if it is near enough.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).clamp(1, 3);
    let candidates = known.into_iter().map(|candidate| (distance(word, candidate), candidate));
    candidates.filter(|(distance, _)| *distance <= limit).min().map(|(_, candidate)| candidate)
}

/// How many letters must be changed, left out, put in or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + changed);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let known = ["renew_every", "margin", "ttl", "ttl_max"];
        assert_eq!(nearest("renew_evry", known), Some("renew_every"));
        assert_eq!(nearest("magrin", known), Some("margin"));
        assert_eq!(nearest("tll", known), Some("ttl"));
        assert_eq!(nearest("colour", known), None);
    }
}
