//! Which columns of `famio top` fit on a terminal, and how a path is shortened. A row without its file is of no use: numbers go first.

/// The file's column, or as much of it as there is room for once the numbers are few.
const FILE_AT_LEAST: usize = 24;
/// Between two columns.
const GAP: usize = 2;

/// Of the numbers' columns, which are so wide, those that are shown. `leaves_first`: the least important one first. `file`: the widest
/// cell of the last column.
pub fn fitting(widths: &[usize], leaves_first: &[usize], file: usize, terminal: usize) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..widths.len()).collect();
    let wanted = file.min(FILE_AT_LEAST);
    for left in leaves_first {
        if used(widths, &shown) + wanted <= terminal {
            break;
        }
        shown.retain(|column| column != left);
    }
    shown
}

/// What the numbers take, with the gap before the last column.
pub fn used(widths: &[usize], shown: &[usize]) -> usize {
    shown.iter().map(|&column| widths[column] + GAP).sum()
}

/// A path in so many characters: `…/folder/name`. The name says more than where it lies.
pub fn shortened(path: &str, most: usize) -> String {
    let length = path.chars().count();
    if length <= most {
        return path.into();
    }
    let tails = path.char_indices().filter(|&(_, c)| c == '/').map(|(at, _)| &path[at..]);
    let fits = |tail: &&str| tail.chars().count() < most && tail.len() > 1;
    match tails.clone().find(fits) {
        Some(tail) => format!("…{tail}"),
        None if most == 0 => String::new(),
        None => format!("…{}", path.chars().skip(length - (most - 1)).collect::<String>()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_path_is_kept() {
        assert_eq!(shortened("/var/lib/app/data.db", 20), "/var/lib/app/data.db");
        assert_eq!(shortened("/var/lib/app/data.db", 19), "…/lib/app/data.db");
        assert_eq!(shortened("/var/lib/app/data.db", 13), "…/app/data.db");
        assert_eq!(shortened("/var/lib/app/data.db", 12), "…/data.db");
        assert_eq!(shortened("/var/lib/app/data.db", 5), "…a.db");
        assert_eq!(shortened("/var/lib/ä.db", 6), "…/ä.db");
        assert_eq!(shortened("/a", 0), "");
    }

    #[test]
    fn the_least_important_number_goes_first() {
        let widths = [6, 7, 9];
        assert_eq!(fitting(&widths, &[1, 2], 10, 80), [0, 1, 2]);
        assert_eq!(fitting(&widths, &[1, 2], 10, 35), [0, 2]);
        assert_eq!(fitting(&widths, &[1, 2], 10, 20), [0]);
    }
}
