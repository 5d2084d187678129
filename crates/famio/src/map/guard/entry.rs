//! The two ends of a guarded call that no compiler can generate: the entry, which saves the registers, and the return
//! from a fault, which restores them.
//!
//! Entry: save the callee-saved registers, link the frame as the innermost, call. Exit, by return or through
//! [`resume`]: unlink, restore. A signal handler that interrupts a guarded call may make guarded calls itself.

use super::Frame;
use core::arch::naked_asm;
use core::mem::offset_of;

/// Calls `thunk(argument)`: 0 when it returned, 1 when the signal handler resumed at [`resume`].
///
/// # Safety
/// `frame` and `innermost` (this thread's word) are valid until the call returns; `thunk` is an `extern "C"` function
/// of one pointer that can be left at any instruction.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn call(
    thunk: *const (),
    argument: *mut (),
    frame: *mut Frame,
    innermost: *mut usize,
) -> usize {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rdx", // frame
        "push rcx", // innermost
        "mov rax, [rcx]",
        "mov [rdx + {outer}], rax",
        "sub rsp, 8", // the ABI's alignment
        "mov [rdx + {stack}], rsp",
        "mov [rcx], rdx", // from here on a fault finds the frame
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        // As `resume`; but the thunk has restored the registers itself.
        "mov rcx, [rsp + 8]",
        "mov rdx, [rsp + 16]",
        "mov rdx, [rdx + {outer}]",
        "mov [rcx], rdx",
        "xor eax, eax",
        "add rsp, 72",
        "ret",
        outer = const offset_of!(Frame, outer),
        stack = const offset_of!(Frame, stack),
    )
}

/// Where a call continues after a fault: the stack pointer is the frame's `stack`, the result register holds 1.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn resume() {
    naked_asm!(
        "add rsp, 8",
        "pop rcx",
        "pop rdx",
        "mov rdx, [rdx + {outer}]",
        "mov [rcx], rdx",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
        outer = const offset_of!(Frame, outer),
    )
}

/// Calls `thunk(argument)`: 0 when it returned, 1 when the signal handler resumed at [`resume`].
///
/// # Safety
/// `frame` and `innermost` (this thread's word) are valid until the call returns; `thunk` is an `extern "C"` function
/// of one pointer that can be left at any instruction.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn call(
    thunk: *const (),
    argument: *mut (),
    frame: *mut Frame,
    innermost: *mut usize,
) -> usize {
    naked_asm!(
        "stp x29, x30, [sp, #-176]!",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]",
        "stp x27, x28, [sp, #80]",
        "stp d8, d9, [sp, #96]",
        "stp d10, d11, [sp, #112]",
        "stp d12, d13, [sp, #128]",
        "stp d14, d15, [sp, #144]",
        "stp x2, x3, [sp, #160]", // frame, innermost
        "mov x29, sp",
        "ldr x9, [x3]",
        "str x9, [x2, #{outer}]",
        "mov x9, sp",
        "str x9, [x2, #{stack}]",
        "str x2, [x3]", // from here on a fault finds the frame
        "mov x9, x0",
        "mov x0, x1",
        "blr x9",
        "mov x0, #0",
        "b {resume}",
        outer = const offset_of!(Frame, outer),
        stack = const offset_of!(Frame, stack),
        resume = sym resume,
    )
}

/// Where a call continues after a fault: the stack pointer is the frame's `stack`, the result register holds 1.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn resume() {
    naked_asm!(
        "ldp x2, x3, [sp, #160]",
        "ldr x9, [x2, #{outer}]",
        "str x9, [x3]",
        "ldp d14, d15, [sp, #144]",
        "ldp d12, d13, [sp, #128]",
        "ldp d10, d11, [sp, #112]",
        "ldp d8, d9, [sp, #96]",
        "ldp x27, x28, [sp, #80]",
        "ldp x25, x26, [sp, #64]",
        "ldp x23, x24, [sp, #48]",
        "ldp x21, x22, [sp, #32]",
        "ldp x19, x20, [sp, #16]",
        "ldp x29, x30, [sp], #176",
        "ret",
        outer = const offset_of!(Frame, outer),
    )
}
