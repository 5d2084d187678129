//! A seccomp filter that makes `io_uring_setup` and `io_setup` fail with `ENOSYS`: requests of io_uring and kernel
//! AIO bypass the preload library, and programs that find neither fall back to calls that it handles.
//!
//! All processes that the program starts inherit the filter, and cannot remove it. It permits everything else,
//! including calls of other architectures, for which a standard filter would kill the program.

use libc::{c_long, seccomp_data, sock_filter, sock_fprog};
use std::io::Error;
use std::mem::offset_of;

/// The kernel's id of an architecture in a filter, and the numbers of the two calls there.
type Architecture = (u32, &'static [u32]);

#[cfg(target_arch = "x86_64")]
const ARCHITECTURES: [Architecture; 2] = {
    // x32 calls have this bit set, and some numbers of their own.
    const X32: u32 = 0x4000_0000;
    const X86_64: u32 = 0xc000_003e;
    const I386: u32 = 0x4000_0003;
    [(X86_64, &[libc::SYS_io_setup as u32, libc::SYS_io_uring_setup as u32, X32 | 543, X32 | 425]), (I386, &[245, 425])]
};
#[cfg(target_arch = "aarch64")]
const ARCHITECTURES: [Architecture; 2] = {
    const AARCH64: u32 = 0xc000_00b7;
    const ARM: u32 = 0x4000_0028;
    [(AARCH64, &[libc::SYS_io_setup as u32, libc::SYS_io_uring_setup as u32]), (ARM, &[243, 425])]
};

/// Installs the filter in this thread, which is to become the program. Does nothing if both calls are refused
/// already, by a container or by a filter of an outer `famio run`.
pub fn install() -> Result<(), String> {
    if !would_work(libc::SYS_io_uring_setup) && !would_work(libc::SYS_io_setup) {
        return Ok(());
    }
    let mut filter = program();
    let program = sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let mut done = load(&program);
    if done.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EACCES)) {
        // Without CAP_SYS_ADMIN, the kernel requires that no set-user-id program can run under the filter.
        // SAFETY: no memory is passed.
        unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        done = load(&program);
    }
    done.map_err(|error| {
        format!(
            "io_uring and kernel AIO, whose requests bypass Famio, can't be refused to the program: seccomp: \
             {error}; where it uses neither, --async-io allow runs it all the same"
        )
    })
}

/// Whether the kernel would permit this call: tried with arguments that it checks only after the call itself is
/// permitted.
fn would_work(number: c_long) -> bool {
    // SAFETY: both calls take a number, here 0, and a pointer, where null is EFAULT.
    let done = unsafe { libc::syscall(number, 0, std::ptr::null_mut::<u8>()) };
    done >= 0 || !matches!(Error::last_os_error().raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
}

fn load(program: &sock_fprog) -> Result<(), Error> {
    // Without this flag, kernels before 5.16 slow the whole program down.
    for flags in [libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW, 0] {
        // SAFETY: the program and its instructions outlive the call, which copies them.
        let done = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, program) };
        if done == 0 {
            return Ok(());
        }
        let error = Error::last_os_error();
        if flags == 0 || error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
    }
    Ok(())
}

/// The instructions: they check architecture and number.
fn program() -> Vec<sock_filter> {
    let answer = |action: u32| statement(libc::BPF_RET | libc::BPF_K, action);
    let mut code = vec![load_word(offset_of!(seccomp_data, arch))];
    for (architecture, numbers) in ARCHITECTURES {
        // If it is another architecture, skips the load of the number, its comparisons and two answers.
        code.push(unless_equal(architecture, numbers.len() as u8 + 3));
        code.push(load_word(offset_of!(seccomp_data, nr)));
        for (index, &number) in numbers.iter().enumerate() {
            code.push(if_equal(number, (numbers.len() - index) as u8));
        }
        code.push(answer(libc::SECCOMP_RET_ALLOW));
        code.push(answer(libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32));
    }
    code.push(answer(libc::SECCOMP_RET_ALLOW));
    code
}

fn load_word(offset: usize) -> sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset as u32)
}

fn if_equal(value: u32, skip: u8) -> sock_filter {
    sock_filter { jt: skip, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value) }
}

fn unless_equal(value: u32, skip: u8) -> sock_filter {
    sock_filter { jf: skip, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value) }
}

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The filter's answer, by an interpreter for the instructions that it uses.
    fn run(architecture: u32, number: u32) -> u32 {
        let code = program();
        let (mut at, mut word) = (0, 0);
        loop {
            let step = code[at];
            at += 1;
            match u32::from(step.code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    word = if step.k as usize == offset_of!(seccomp_data, arch) { architecture } else { number };
                }
                code if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => {
                    at += usize::from(if word == step.k { step.jt } else { step.jf });
                }
                code if code == libc::BPF_RET | libc::BPF_K => return step.k,
                code => panic!("instruction {code:#x}"),
            }
        }
    }

    #[test]
    fn two_calls_of_each_architecture_are_refused() {
        let refused = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
        for (architecture, numbers) in ARCHITECTURES {
            for number in (0..600).chain(0x4000_0000..0x4000_0300) {
                let wanted = if numbers.contains(&number) { refused } else { libc::SECCOMP_RET_ALLOW };
                assert_eq!(run(architecture, number), wanted, "{architecture:#x} {number}");
            }
        }
        // An architecture that is not in the list: everything is permitted.
        assert_eq!(run(0x1234, 425), libc::SECCOMP_RET_ALLOW);
    }
}
