//! Which columns of `famio top` fit on a terminal, and how a path is shortened. A row without its file is useless, so
//! columns of numbers are dropped first.

/// Least width of the file's column while there are columns of numbers to drop.
const FILE_AT_LEAST: usize = 24;
/// Between two columns.
const GAP: usize = 2;

/// Which of the columns of numbers, with these widths, are shown. `leaves_first`: the order in which columns are
/// dropped. `file`: the widest cell of the last column.
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

/// The width of the numbers, with the gap before the last column.
pub fn used(widths: &[usize], shown: &[usize]) -> usize {
    shown.iter().map(|&column| widths[column] + GAP).sum()
}

/// A path shortened to that many characters: `…/folder/name`. The name matters more than the folder.
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
