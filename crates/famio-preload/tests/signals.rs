//! Signal handlers that make the same calls that they have interrupted.

mod common;

use common::same;

/// It used to hang: the handler waited for a mutex that its own thread held. Later, it failed with `EDEADLK`.
#[test]
fn a_handler_makes_the_calls_that_it_interrupts() {
    assert_eq!(same("signals"), "");
}
