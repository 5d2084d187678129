//! Handlers of signals that make the calls that they interrupted.

mod common;

use common::same;

/// Was a hang: the handler waited for a mutex that the thread below it held.
#[test]
fn a_handler_makes_the_calls_that_it_interrupts() {
    let said = same("signals");
    // Which calls were refused is chance; it is said once.
    assert!(
        said.lines().all(|line| line.ends_with("and made another (EDEADLK)")) && said.lines().count() < 2,
        "{said}"
    );
}
