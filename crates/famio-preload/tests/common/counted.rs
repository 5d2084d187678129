//! System calls of a program, counted in a trace of `strace -f`. The program says that a step begins by looking for
//! `/cost-STEP`, which is not there.

use std::path::Path;

/// A system call in a step.
pub struct Call<'a> {
    /// The thread that says what begins has made it.
    pub is_programs: bool,
    /// The second part of a call that another thread's had interrupted.
    pub is_resumed: bool,
    /// As `strace` writes it: its name, and its arguments.
    pub text: &'a str,
}

/// How many calls of each step `counts`.
pub fn calls<const N: usize>(trace: &Path, steps: [&str; N], counts: impl Fn(&str, &Call) -> bool) -> [usize; N] {
    let trace = std::fs::read_to_string(trace).unwrap();
    let mut lines = trace.lines().filter_map(|line| line.split_once(' '));
    let (programs, _) =
        lines.clone().find(|(_, text)| text.contains("\"/cost-")).expect("the program says what begins");
    let mut counted = [0; N];
    let mut step = None;
    for (thread, text) in lines.by_ref() {
        let text = text.trim_start();
        let call = Call { is_programs: thread == programs, is_resumed: text.contains(" resumed>"), text };
        if let Some(said) = text.split("\"/cost-").nth(1) {
            step = steps.iter().position(|step| said.split('"').next() == Some(step));
        } else if let Some(step) = step
            && counts(steps[step], &call)
        {
            counted[step] += 1;
        }
    }
    counted
}
