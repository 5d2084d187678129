//! Handlers of signals that make the calls that they interrupted.

mod common;

use common::same;

/// Was a hang: the handler waited for a mutex that the thread below it held. Then it was `EDEADLK`.
#[test]
fn a_handler_makes_the_calls_that_it_interrupts() {
    assert_eq!(same("signals"), "");
}
