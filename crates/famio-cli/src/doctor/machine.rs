//! The processor and the kernel.

use super::finding::Finding;
use famio::pmem::cpu;

/// Findings that do not depend on a path.
pub fn look() -> Vec<Finding> {
    let system = rustix::system::uname();
    let kernel = format!(
        "{} {} on {}",
        system.sysname().to_string_lossy(),
        system.release().to_string_lossy(),
        system.machine().to_string_lossy()
    );
    vec![Finding::fine("kernel", kernel), Finding::fine("CPU", cpu::features().to_string())]
}
