//! Runs when the library is loaded.

use crate::{number, start};

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    start::shared();
    number::find_next();
}
